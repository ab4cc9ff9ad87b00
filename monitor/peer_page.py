"""What a server's own page shows, ready to print: its state and what that rests on, its day, its moves, and what it carries.

Pure. Says what was seen, and of what a server does not share that it is not shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from monitor.history.bars import OF_SERVER, History, history
from monitor.history.hours import HourLine, cache_left_words, hour_line, mean_words
from monitor.history.peers import PeerHistory
from monitor.history.timeline import Timeline, timeline
from monitor.history.uptime import DayTally
from monitor.notices import Notice, notices
from monitor.published import Published, Sighting, Watch, ago, beliefs, name_of
from monitor.rates.words import of_rate
from monitor.serving import is_full, version_of
from monitor.tables import (
    FULL_SYMBOL,
    NOT_SHARED,
    STATE_SYMBOLS,
    cache_words,
    leaving_words,
    raw_of,
    short,
    speed_words,
    why_of,
)
from monitor.times import Checked, Moment, checked
from swarm.coverage import coverage
from swarm.snapshot import Model, Outcome, PeerState, Server
from swarm.wire.spans import in_words, runs

PINGS = 10

_LEVELS = {
    PeerState.ONLINE: "complete",
    PeerState.JOINING: "thin",
    PeerState.LEAVING: "unknown",
    PeerState.UNREACHABLE: "broken",
    PeerState.GONE: "unknown",
    PeerState.NOT_CHECKED: "unknown",
}


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    words: str
    said: bool = True


@dataclass(frozen=True, slots=True)
class Serving:
    """One peer in one model."""

    prefix: str
    model: str
    num_blocks: int
    symbol: str
    level: str
    state: str
    start: int
    length: int
    words: str
    fresh: str
    why: str
    raw: str
    advice: tuple[str, ...]
    facts: tuple[Fact, ...]
    without: str
    neighbours: tuple[tuple[str, str, str], ...]
    timeline: Timeline | None
    days: History | None
    hours: tuple[HourLine, ...]
    mean: str
    cache: str


@dataclass(frozen=True, slots=True)
class PeerPage:
    title: str
    symbol: str
    level: str
    heading: str
    peer_id: str
    short_id: str
    public_name: str | None
    notices: tuple[Notice, ...]
    checked: Checked | None
    servings: tuple[Serving, ...]
    stale: bool

    @property
    def seen(self) -> bool:
        return bool(self.servings)


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of what is known, with the history that belongs to it."""

    model: Model
    server: Server
    sighting: Sighting
    history: PeerHistory | None


def peer_page(seen: Watch, peer_id: str, subjects: Sequence[Subject]) -> PeerPage:
    published = seen.published
    stale = published is None or published.stale
    servings = tuple(_serving(seen, subject, stale) for subject in sorted(subjects, key=_liveliest))
    if servings:
        first = servings[0]
        symbol, level, heading = ("?", "unknown", _of_then(published, first.words)) if stale else (
            first.symbol, first.level, first.words
        )  # fmt: skip
    else:
        symbol, level, heading = "?", "unknown", f"Unknown: we have never seen {short(peer_id)}"
    name = next((s.server.record.public_name for s in subjects if s.server.record.public_name), None)
    return PeerPage(
        title=f"{symbol} {short(peer_id)}: {heading}",
        symbol=symbol,
        level=level,
        heading=heading,
        peer_id=peer_id,
        short_id=short(peer_id),
        public_name=name,
        notices=notices(seen),
        checked=checked(published) if published else None,
        servings=servings,
        stale=stale,
    )


def _of_then(published: Published | None, words: str) -> str:
    when = f"when last checked, {published.when}: " if published is not None else ""
    return f"Unknown — {when}{words[:1].lower()}{words[1:]}"


def _since_first(days: Sequence[DayTally]) -> Sequence[DayTally]:
    """Before it was first seen there was nothing to watch."""
    first = next((index for index, day in enumerate(days) if day.minutes.watched), len(days))
    return days[first:]


def _liveliest(subject: Subject) -> tuple[int, float]:
    order = list(_LEVELS)
    return order.index(subject.server.state), -subject.sighting.last_seen


def _serving(seen: Watch, subject: Subject, stale: bool) -> Serving:
    server, model, now = subject.server, subject.model, seen.read_at
    told = subject.history
    hours = told.hours if told else ()
    published = seen.published
    present = published.snapshot.model(model.prefix) if published else None
    return Serving(
        prefix=model.prefix,
        model=name_of(model),
        num_blocks=model.num_blocks,
        symbol=FULL_SYMBOL if is_full(server) else STATE_SYMBOLS[server.state],
        level=_LEVELS[server.state],
        state=server.state.value.replace(" ", "-"),
        start=min(server.span.start, model.num_blocks - 1),
        length=max(1, min(server.span.end, model.num_blocks) - server.span.start),
        words=_words(subject, now),
        fresh=_fresh(subject, now),
        why=why_of(server, subject.sighting, now),
        raw=raw_of(server) if server.visit and not server.visit.answered else "",
        advice=_advice(server),
        facts=_facts(subject, now, _counted(subject, published, present)),
        without="" if stale or present is None else without_words(present, server),
        neighbours=_neighbours(server, published, present),
        timeline=timeline(told.samples, told.watched, now) if told else None,
        days=history(_since_first(told.days), OF_SERVER) if told else None,
        hours=tuple(map(hour_line, hours)),
        mean=mean_words(hours),
        cache=cache_left_words(hours),
    )


def _words(subject: Subject, now: float) -> str:
    """The answer, in one sentence, and how fresh it is."""
    server, sighting, name = subject.server, subject.sighting, name_of(subject.model)
    blocks, last = server.span.in_words(), Moment(sighting.last_seen, now)
    if server.state is PeerState.ONLINE:
        full = ", with no cache left for another session" if is_full(server) else ""
        return f"Online, serving {blocks} of {name}{full}"
    if server.state is PeerState.JOINING:
        return f"Joining: loading {blocks} of {name} for {ago(now - sighting.state_since)}"
    if server.state is PeerState.LEAVING:
        return f"Leaving: it says that it stops serving {blocks} of {name}"
    if server.state is PeerState.UNREACHABLE and server.visit and server.visit.outcome is Outcome.WRONG_ANSWER:
        return f"Not counted: it answers for {blocks} of {name}, and {server.visit.detail}"
    if server.state is PeerState.UNREACHABLE:
        return f"Unreachable: announced for {blocks} of {name}, but it does not answer us"
    if server.state is PeerState.NOT_CHECKED:
        return f"Not checked: last known to serve {blocks} of {name}"
    return f"Gone: last seen {last.clock} ({last.ago} ago), {leaving_words(server)}"


def _fresh(subject: Subject, now: float) -> str:
    """`Last sign of life 14 s ago. Asked 40 s ago, reached directly.`"""
    server, visit = subject.server, subject.server.visit
    said = f"Last sign of life {Moment(subject.sighting.last_seen, now).ago} ago."
    if visit is None or server.state is PeerState.GONE:
        return said
    way = {"direct": ", reached directly", "relay": ", reached through a relay"}.get(visit.via, "") if visit.reached else ""
    told = "" if visit.answered else f": {visit.outcome.value}"
    return f"{said} Asked {Moment(visit.at, now).ago} ago{way}{told}."


def _advice(server: Server) -> tuple[str, ...]:
    """What its operator can do about it."""
    if server.state is not PeerState.UNREACHABLE:
        return ()
    outcome = server.visit.outcome if server.visit else None
    if outcome is Outcome.NOT_HELD:
        return ("It answers, but not for these blocks: it may have moved a moment ago. If this stays, restart it.",)
    if outcome is Outcome.WRONG_ANSWER:
        return (
            "It can be reached, but what it computes is wrong: look at its GPU and its files. Restart it.",
            "It counts again after its next right answer to our small forward pass, within 10 minutes or so.",
        )
    if outcome is Outcome.PROTOCOL_ABSENT:
        return ("The peer is there, but no server runs behind it: look at the server's log.",)
    return (
        "Clients behind the same relay may still reach it.",
        "Look whether the process still runs: sepal status.",
        "Open its port in the firewall and on the router, or serve through a relay.",
        "Run sepal doctor on the machine, with the same arguments as sepal serve: it names what is closed.",
    )


def _counted(subject: Subject, published: Published | None, model: Model | None) -> str:
    """`120 tok/s: measured at 96.0 tokens/s`; empty where its own figure is believed."""
    if published is None or model is None:
        return ""
    return of_rate(beliefs(published, model).get(subject.server.peer_id)).removeprefix("counts as ")


def _precision(dtype: str | None, quantisation: str | None) -> str:
    quantised = "not quantised" if quantisation == "none" else quantisation
    return ", ".join(word for word in (dtype, quantised) if word) or NOT_SHARED


def _facts(subject: Subject, now: float, counted: str) -> tuple[Fact, ...]:
    server, sighting, record, visit = subject.server, subject.sighting, subject.server.record, subject.server.visit
    relay = record.using_relay
    via = (visit.via if visit else "") or (NOT_SHARED if relay is None else "relay" if relay else "direct")
    asked = f"{Moment(visit.at, now).ago} ago: {visit.outcome.value}" if visit else "not asked"
    trip = f", in {visit.round_trip_s * 1000:,.0f} ms" if visit and visit.round_trip_s is not None else ""
    said = [
        ("Blocks", server.span.in_words()),
        ("State since", f"{Moment(sighting.state_since, now).clock} ({Moment(sighting.state_since, now).ago})"),
        ("Last sign of life", f"{Moment(sighting.last_seen, now).clock} ({Moment(sighting.last_seen, now).ago} ago)"),
        ("Last asked", asked + trip),
        ("First seen", Moment(sighting.first_seen, now).clock),
        ("Reached", via),
        ("Throughput", speed_words(record.throughput)),
        *([("Counts as", counted)] if counted else []),
        ("Forward", speed_words(record.forward_rps)),
        ("Inference", speed_words(record.inference_rps)),
        ("Network", speed_words(record.network_rps)),
        ("Cache left", cache_words(server)),
        ("Version", version_of(server) or NOT_SHARED),
        ("Precision", _precision(record.torch_dtype, record.quant_type)),
        ("Adapters", ", ".join(record.adapters) or "none named"),
    ]
    return tuple(Fact(name, words, words != NOT_SHARED) for name, words in said)


def without_words(model: Model, server: Server) -> str:
    """What would happen if it left."""
    if server.state is not PeerState.ONLINE:
        return "Nothing would change: it serves no block now."
    after = coverage(replace(model, servers=tuple(s for s in model.servers if s.peer_id != server.peer_id)))
    before = coverage(model)
    lost = runs(b.index for b in after.blocks if b.redundancy == 0 and before.blocks[b.index].redundancy)
    alone = runs(b.index for b in after.blocks if b.redundancy == 1 and (before.blocks[b.index].redundancy or 0) > 1)
    if lost:
        many = sum(map(len, lost))
        return f"{many} {'block' if many == 1 else 'blocks'} would have no server ({in_words(lost)}): the model could not run."
    if alone:
        many = sum(map(len, alone))
        return f"Every block would still have a server, {many} of them only one ({in_words(alone)})."
    return "Every block that it serves would still have two servers or more."


def _neighbours(server: Server, published: Published | None, model: Model | None) -> tuple[tuple[str, str, str], ...]:
    """(peer id, short id, words): the servers that it measured its way to, nearest first."""
    held = {other.peer_id: other.span.in_words() for other in model.servers} if published and model else {}
    pings = sorted(server.record.next_pings.items(), key=lambda item: (item[1], item[0]))[:PINGS]
    return tuple(
        (
            peer,
            short(peer),
            f"{'no answer' if ping == float('inf') else f'{ping * 1000:,.0f} ms'}, {held.get(peer, 'not in this model now')}",
        )
        for peer, ping in pings
    )
