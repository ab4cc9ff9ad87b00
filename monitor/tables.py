"""The rows of a model's page: gaps and thin spots, servers, and records that were left out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from monitor.published import CrawlFacts, Published, Sighting, Standing, ago, beliefs
from monitor.rates.words import counted, of_clients, of_rate
from monitor.serving import FULL, cache_tokens_of, is_full, shown_state, version_of
from monitor.times import Moment
from swarm.snapshot import AddressState, Dropped, Model, Outcome, PeerState, Server
from swarm.throughput import Belief
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ServerState
from swarm.wire.spans import Span, in_words, runs

GAPS_SHOWN = 24
"""Runs of blocks in the table; a swarm more torn than that is read from the cells."""
DROPPED_SHOWN = 20
NOT_SHARED = "not shared"

STATE_SYMBOLS = {
    PeerState.ONLINE: "●",
    PeerState.JOINING: "◐",
    PeerState.LEAVING: "○",
    PeerState.UNREACHABLE: "✕",
    PeerState.GONE: "–",
    PeerState.NOT_CHECKED: "?",
}

FULL_SYMBOL = "◉"

JOINING_LONG_S = 1_200.0
"""Loading the largest share of the largest model takes a quarter of an hour; longer is worth a look."""

_VISITS = {
    Outcome.NOT_HELD: "it answered, but does not hold the blocks that it announces",
    Outcome.PROTOCOL_ABSENT: "it can be reached, but serves no blocks",
    Outcome.REFUSED: "nothing accepts connections at its addresses",
    Outcome.NO_ADDRESS: "the swarm knows no address of it",
    Outcome.TIMEOUT: "it did not answer in time",
    Outcome.ERROR: "asking it for its blocks failed",
    Outcome.WRONG_ANSWER: "it answers, but what it computes is wrong, so that its blocks do not count",
}

REASONS = {
    "undecodable": "bytes that are no msgpack",
    "too-large": "larger than any real record",
    "too-many": "more records under one key than any swarm has servers",
    "shape": "not a record of a server or model",
    "subkey": "written under something that is no peer id",
    "prefix": "not a usable model prefix",
    "state": "a state that is none",
    "span": "a span that is none, or that its keys do not bear out",
    "throughput": "a throughput that is no positive number",
    "model-size": "a number of blocks that no model has",
    "left-over": "from before its server moved, and not renewed since",
    "index-unread": "the index of models itself, so that new models are not shown",
    "too-many-models": "a model beyond what one check can read",
    "not-sized-yet": "a model without a usable size, whose turn to be looked through has not come",
}


@dataclass(frozen=True, slots=True)
class GapRow:
    """A run of blocks with no server, with one, or unread. `level` is its class."""

    level: str
    symbol: str
    blocks: str
    online: str
    joining: int
    since: Moment | None
    last: str
    first: int = 0
    last_peer: str = ""
    action: str = ""
    """What one can do about it; empty where nobody knows whether there is anything to do."""


@dataclass(frozen=True, slots=True)
class ServerLine:
    peer_id: str
    short_id: str
    conflict: str
    public_name: str | None
    state: str
    symbol: str
    level: str
    why: str
    raw: str
    """The raw text of a failed visit's error, for those who want to know more."""
    start: int
    end: int
    blocks: str
    throughput: str
    counted: str
    """What is believed of its throughput; empty where that is what it reports."""
    counted_why: str
    clients: str
    cache: str
    version: str
    via: str
    seen: Moment | None
    since: Moment | None
    lately: bool
    """Whether the last look had a sign of it: then its time says no more than the page's own does."""
    asked: str

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class DroppedNote:
    """Records left out of what is shown: how many for which reason, and the first of them in full."""

    total: int
    counts: tuple[tuple[str, int, str], ...]
    examples: tuple[Dropped, ...]


@dataclass(frozen=True, slots=True)
class EntranceRow:
    """One address of a bootstrap peer, as it may be shown."""

    short_id: str
    where: str
    symbol: str
    words: str


_STEPS = {"dns": "its name does not resolve", "tcp": "nothing answers there", "dht": "no answer to a DHT query"}


def entrance_rows(last: CrawlFacts | None) -> tuple[EntranceRow, ...]:
    """How far a query over each address came in the last check; IPv4 and IPv6 apart."""
    return tuple(
        EntranceRow(
            short(state.peer_id),
            f"{state.family} {state.endpoint}",
            "●" if state.up else "✕",
            _answers(state) if state.up else state.detail or _STEPS.get(state.step, state.step),
        )
        for state in (last.addresses if last else ())
    )


def _answers(state: AddressState) -> str:
    return f"answers a DHT query ({state.detail})" if state.detail else "answers a DHT query"


def gap_rows(published: Published, item: Standing) -> tuple[GapRow, ...]:
    levels = (
        ("n0", "✕", "0", item.coverage.holes),
        ("unknown", "?", "not read", item.coverage.unread),
        ("n1", "!", "1", item.coverage.thin),
    )
    found = [(level, symbol, online, span) for level, symbol, online, spans in levels for span in spans]
    return tuple(_gap_row(published, item, *gap) for gap in found[:GAPS_SHOWN])


def server_lines(published: Published, model: Model, servers: Iterable[Server]) -> tuple[ServerLine, ...]:
    believed = beliefs(published, model)
    return tuple(_server_line(published, model, server, believed) for server in servers)


def dropped_note(published: Published, prefix: str | None) -> DroppedNote | None:
    """For one model its own keys' records and those of the index; for all models with `prefix` None."""
    if prefix is None:
        records, counts = list(published.snapshot.dropped), Counter(published.crawl.dropped)
    else:
        records = [d for d in published.snapshot.dropped if d.key == MODELS_KEY or _prefix_of(d.key) == prefix]
        counts = Counter(record.reason for record in records)
    if not counts:
        return None
    listed = tuple((reason, count, REASONS.get(reason, reason)) for reason, count in counts.most_common())
    return DroppedNote(counts.total(), listed, tuple(records[:DROPPED_SHOWN]))


def unread_words(models: Iterable[Model], stale: bool) -> str:
    """Why a server may be missing that has announced itself: nobody looked where it stands. Empty where all could be read."""
    if stale:
        return "Nobody sees the swarm now: it may have come since."
    told = [f"{in_words(runs(m.unread_blocks))} of {m.prefix}" for m in models if m.unread_blocks]
    return f"What stands under {'; '.join(told)} could not be read: it may be there." if told else ""


def _prefix_of(key: str) -> str:
    return key.rsplit(".", 1)[0]


def _gap_row(published: Published, item: Standing, level: str, symbol: str, online: str, span: Span) -> GapRow:
    newest = lost_on(published, item, span) if level != "unknown" else None
    return GapRow(
        level=level,
        symbol=symbol,
        blocks=span.in_words(),
        first=span.start,
        online=online,
        joining=min(len(item.coverage.blocks[block].joining) for block in span),
        since=Moment(newest[0], published.read_at) if newest else None,
        last=parting(newest[1], newest[2], published.read_at) if newest else "",
        last_peer=newest[1].peer_id if newest else "",
        action="" if item.stale or level == "unknown" else f"serve {span.in_words()}",
    )


def lost_on(published: Published, item: Standing, span: Span) -> tuple[float, Server, Sighting] | None:
    """The server that was the last to leave one of these blocks, and since when it is in its state."""
    prefix = item.model.prefix
    everyone = [*item.model.servers, *published.absent.get(prefix, ())]
    lost = [
        (sighting.state_since, server, sighting)
        for server in everyone
        if server.span.overlaps(span) and server.state in (PeerState.GONE, PeerState.UNREACHABLE, PeerState.LEAVING)
        if (sighting := published.sightings.get((prefix, server.peer_id))) is not None
    ]
    return max(lost, key=lambda loss: (loss[0], loss[1].peer_id), default=None)


def parting(server: Server, sighting: Sighting, now: float) -> str:
    seen = Moment(sighting.last_seen, now).clock
    if server.state is PeerState.UNREACHABLE:
        return f"{short(server.peer_id)}, does not answer; last seen {seen}"
    return f"{short(server.peer_id)}, {leaving_words(server)}; last seen {seen}"


def _server_line(published: Published, model: Model, server: Server, believed: Mapping[str, Belief]) -> ServerLine:
    key = (model.prefix, server.peer_id)
    sighting = published.sightings.get((model.prefix, server.peer_id))
    now = published.read_at
    relay = server.record.using_relay
    return ServerLine(
        peer_id=server.peer_id,
        short_id=short(server.peer_id),
        conflict=server.conflict,
        public_name=server.record.public_name,
        state=shown_state(server),
        symbol=FULL_SYMBOL if is_full(server) else STATE_SYMBOLS[server.state],
        level=shown_state(server).replace(" ", "-"),
        why=why_of(server, sighting, now),
        raw=raw_of(server),
        start=server.span.start,
        end=min(server.span.end, model.num_blocks),
        blocks=server.span.in_words().removeprefix("blocks ").removeprefix("block "),
        throughput=speed_words(server.record.throughput),
        counted=counted(believed.get(server.peer_id)),
        counted_why=of_rate(believed.get(server.peer_id)),
        clients=of_clients(published.told.get(key)),
        cache=cache_words(server),
        version=version_of(server) or NOT_SHARED,
        via=(server.visit.via if server.visit else "") or (NOT_SHARED if relay is None else "relay" if relay else "direct"),
        seen=Moment(sighting.last_seen, now) if sighting else None,
        since=Moment(sighting.state_since, now) if sighting else None,
        lately=sighting is not None
        and not published.stale
        and published.snapshot.at - sighting.last_seen < 2 * published.interval_s,
        asked=f"{Moment(server.visit.at, now).clock}: {server.visit.outcome.value}" if server.visit else "not asked",
    )


def speed_words(speed: float | None) -> str:
    return NOT_SHARED if speed is None else f"{speed:,.0f} tok/s" if speed >= 10 else f"{speed:.1f} tok/s"


def cache_words(server: Server) -> str:
    tokens = cache_tokens_of(server)
    return NOT_SHARED if tokens is None else f"{tokens:,} tokens"


def why_of(server: Server, sighting: Sighting | None, now: float) -> str:
    """What its state rests on, where that is not plain."""
    said = [why_state(server, sighting, now)]
    if server.skew_s:
        way = "ahead of" if server.skew_s > 0 else "behind"
        said.append(f"its clock seems to be {ago(abs(server.skew_s))} {way} ours")
    return "; ".join(words for words in said if words)


def why_state(server: Server, sighting: Sighting | None, now: float) -> str:
    if server.state is PeerState.GONE:
        return leaving_words(server)
    if server.quarantined:
        return f"set aside by this site's staff: {server.quarantined}"
    if server.state is PeerState.NOT_CHECKED:
        return "its record could not be read, or there was no time to ask it"
    if server.state is PeerState.LEAVING:
        return "it says that it is leaving"
    if server.state is PeerState.JOINING:
        return _joining_words(server, now - sighting.state_since if sighting else 0.0)
    if server.state is PeerState.UNREACHABLE and server.visit is not None:
        return _VISITS.get(server.visit.outcome, server.visit.outcome.value)
    return "it serves, but has no cache left for another session" if shown_state(server) == FULL else ""


def _joining_words(server: Server, for_s: float) -> str:
    since = f" for {ago(for_s)}" if for_s >= 1 else ""
    stuck = ", longer than any model should take: it may be stuck" if for_s > JOINING_LONG_S else ""
    silent = "" if server.visit is None or server.visit.reached else f", but {_VISITS[server.visit.outcome]}"
    ignored = "" if server.awaited else "; hints do not count on it"
    return f"its record says that it is loading its blocks{since}{stuck}{silent}{ignored}"


def raw_of(server: Server) -> str:
    if server.visit is None:
        return ""
    tried = f" (tried: {', '.join(server.visit.addresses)})" if server.visit.addresses else ""
    if not tried and server.visit.outcome is Outcome.TIMEOUT:
        # libp2p names them when it gives up itself, which takes three times as long as a check waits.
        tried = " (addresses tried: not told)"
    return server.visit.detail + tried


def leaving_words(server: Server) -> str:
    if server.record.state is ServerState.OFFLINE:
        return "left normally"
    return "stopped announcing, and its record ran out"


def short(peer_id: str) -> str:
    return f"…{peer_id[-6:]}"
