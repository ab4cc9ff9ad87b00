"""One swarm at one instant: which models there are, who claims which blocks, who answered when visited, what could not be read.

Pure: readings, visits and the time come in, a frozen Snapshot goes out. A server's own answer beats its record, a bad
record costs only itself, and what could not be read is kept apart from what is not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from swarm.errors import BadRecord
from swarm.wire.keys import MAX_BLOCKS, MODELS_KEY, block_uid, parse_peer_id, parse_prefix
from swarm.wire.records import ModelRecord, ServerRecord, ServerState, parse_model_record, parse_server_record
from swarm.wire.spans import Span, runs

MAX_RECORD_LIFE_S = 900.0
"""A record may count for this long after it was read, whatever expiry it claims: twice the longest update period in use
plus slack. The DHT itself accepts expiries ten years ahead, from anyone."""


class PeerState(StrEnum):
    """The five words that people are shown for a server, and one for a server that nobody has visited."""

    ONLINE = "online"
    JOINING = "joining"
    LEAVING = "leaving"
    UNREACHABLE = "unreachable"
    GONE = "gone"
    NOT_CHECKED = "not checked"


class Outcome(StrEnum):
    """How a visit to a server ended."""

    ANSWERED = "answered"
    NOT_HELD = "not held"
    PROTOCOL_ABSENT = "protocol absent"
    REFUSED = "refused"
    NO_ADDRESS = "no address"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Entry:
    """One value under one subkey as it was read: decoded, or the BadRecord that decoding ended in. Times in Unix seconds."""

    subkey: object
    value: object
    expires_at: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pass over some DHT keys brought. A key in `unread` was not answered for by any peer: it says nothing."""

    entries: Mapping[str, Sequence[Entry]]
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Visit:
    """One dial of one server, asking it for the blocks at the edges of its span. `detail` is the raw text of an error.

    `span` is the one that it was asked for, `addresses` those that were tried, `via` direct or relay where that is known.
    `network` stands for the network that it sits in, without saying which: the same text for peers of the same one.
    """

    peer_id: str
    at: float
    outcome: Outcome
    detail: str = ""
    round_trip_s: float | None = None
    version: str | None = None
    cache_tokens_left: int | None = None
    span: Span | None = None
    addresses: tuple[str, ...] = ()
    via: str = ""
    network: str = ""

    @property
    def answered(self) -> bool:
        return self.outcome is Outcome.ANSWERED

    @property
    def reached(self) -> bool:
        """Whether anybody was there, whatever was said."""
        return self.outcome in (Outcome.ANSWERED, Outcome.NOT_HELD, Outcome.PROTOCOL_ABSENT, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Timing:
    """A server's speed against the clock: seconds that the same tokens took through `blocks` blocks and through one of them,
    and that a question without tokens took."""

    tokens: int
    blocks: int
    whole_s: float
    one_s: float
    round_trip_s: float


@dataclass(frozen=True, slots=True)
class Server:
    """One server of one model. `expires_at` is when its record runs out, capped.

    `conflict` says where its own answer and its record contradict each other: then the answer counts. `skew_s` is how far its
    clock seems to run ahead of ours. `quarantined` says why those who watch the swarm have it count for nothing.
    """

    peer_id: str
    span: Span
    state: PeerState
    record: ServerRecord
    expires_at: float
    visit: Visit | None = None
    conflict: str = ""
    skew_s: float | None = None
    quarantined: str = ""


@dataclass(frozen=True, slots=True)
class AddressState:
    """One address of a bootstrap peer: how far a query through it came. `step` is `ok`, or where it ended: dns, tcp, dht."""

    address: str
    peer_id: str
    family: str
    step: str
    detail: str = ""

    @property
    def up(self) -> bool:
        return self.step == "ok"

    @property
    def endpoint(self) -> str:
        """What may be shown of the address: `tcp/31337`, without the host."""
        parts = self.address.split("/")[3:]
        own = "/".join(parts[: parts.index("p2p")] if "p2p" in parts else parts)
        return f"{own} through a relay" if "p2p-circuit" in parts else own


@dataclass(frozen=True, slots=True)
class Dropped:
    """A record that was left out, and why: a page that shows nothing must be able to say so."""

    key: str
    subkey: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Model:
    """One model's part of a snapshot; servers in order of span, then peer id. `conflict` says what the index of models holds
    against what is shown. `at_least`: nobody has said how many blocks it has, and `num_blocks` is what was seen of it."""

    prefix: str
    num_blocks: int
    repository: str | None
    servers: tuple[Server, ...] = ()
    unread_blocks: frozenset[int] = frozenset()
    conflict: str = ""
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    swarm: str
    at: float
    models: tuple[Model, ...]
    dropped: tuple[Dropped, ...] = ()

    def model(self, prefix: str) -> Model | None:
        return next((model for model in self.models if model.prefix == prefix), None)


@dataclass
class _Claims:
    """Everything that stands in the DHT for one peer under one model."""

    newest: ServerRecord
    expires_at: float
    blocks_by_span: dict[Span | None, set[int]] = field(default_factory=lambda: defaultdict(set))


@dataclass(frozen=True, slots=True)
class Index:
    """The index of models as it may be believed. `conflicts` is by prefix; `unsized` are prefixes that the index names without
    a usable record: how many blocks they have must be found out from their block keys. `claims` holds by prefix each number of
    blocks that a usable entry says, with the record of that entry which expires last."""

    models: Mapping[str, ModelRecord]
    dropped: tuple[Dropped, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    unsized: frozenset[str] = frozenset()
    claims: Mapping[str, Mapping[int, ModelRecord]] = field(default_factory=dict)


def read_index(reading: Reading, known: Mapping[str, ModelRecord] | None = None) -> Index:
    """Nothing in the index is signed and anyone may write any entry, so a model that is `known` stays what it is: an entry that
    says otherwise, or cannot be read, is a conflict. Of several good entries the one that expires last counts."""
    believed = dict(known or {})
    models: dict[str, ModelRecord] = {}
    dropped: list[Dropped] = []
    conflicts: dict[str, str] = {}
    named: set[str] = set()
    claims: dict[str, dict[int, ModelRecord]] = defaultdict(dict)
    for entry in sorted(reading.entries.get(MODELS_KEY, ()), key=lambda entry: entry.expires_at):
        try:
            prefix = parse_prefix(entry.subkey)
        except BadRecord as error:
            dropped.append(_dropped(MODELS_KEY, entry, error))
            continue
        try:
            record = parse_model_record(_decoded(entry))
        except BadRecord as error:
            dropped.append(_dropped(MODELS_KEY, entry, error))
            conflicts[prefix] = f"an entry of it in the index of models cannot be used: {error.detail}"
            named.add(prefix)
            continue
        other = believed.get(prefix) or models.get(prefix)
        if other is not None and other != record:
            conflicts[prefix] = _contradiction(record, other)
        models[prefix] = believed.get(prefix, record)
        claims[prefix][record.num_blocks] = record
    models.update({prefix: believed[prefix] for prefix in named - set(models) if prefix in believed})
    conflicts = {prefix: words for prefix, words in conflicts.items() if prefix in models}
    return Index(models, tuple(dropped), conflicts, frozenset(named - set(models)), dict(claims))


def read_models(reading: Reading) -> tuple[dict[str, ModelRecord], list[Dropped]]:
    """The index of models by prefix, and the entries that are none."""
    index = read_index(reading)
    return dict(index.models), list(index.dropped)


def size_from_keys(prefix: str, reading: Reading, at: float) -> int | None:
    """How many blocks a model has as far as the keys under which servers stand show it; None where there are none."""
    servers, _ = read_servers(prefix, MAX_BLOCKS, reading, at)
    return max((span.end for _, span, _ in servers.values()), default=None)


def _contradiction(record: ModelRecord, other: ModelRecord) -> str:
    if record.num_blocks != other.num_blocks:
        return f"the index of models also says {record.num_blocks} blocks; {other.num_blocks} stands"
    return f"the index of models also names {record.repository or 'no repository'}; {other.repository or 'none'} stands"


def read_servers(
    prefix: str, num_blocks: int, reading: Reading, at: float
) -> tuple[dict[str, tuple[ServerRecord, Span, float]], list[Dropped]]:
    """Each peer's newest record, the span it may count for, and the record's capped expiry.

    A span never reaches beyond the keys under which it stands, so that one record cannot claim a whole model; and only the
    keys of the newest record count, so that the old records of a server that moved never widen its span.
    """
    claims: dict[str, _Claims] = {}
    dropped: list[Dropped] = []
    for block in range(min(num_blocks, MAX_BLOCKS)):
        key = block_uid(prefix, block)
        for entry in reading.entries.get(key, ()):
            if entry.expires_at <= at:
                continue
            try:
                record = parse_server_record(_decoded(entry))
                _add_claim(claims, parse_peer_id(entry.subkey), block, record, entry.expires_at)
            except BadRecord as error:
                dropped.append(_dropped(key, entry, error))
    servers: dict[str, tuple[ServerRecord, Span, float]] = {}
    for peer_id, claim in sorted(claims.items()):
        span = _span_of(claim)
        if span is None:
            subject = f"{prefix}.{claim.newest.span.start}" if claim.newest.span else prefix
            dropped.append(Dropped(subject, peer_id, "span", f"claims {claim.newest.span}, but no key of it stands in the DHT"))
            continue
        servers[peer_id] = (claim.newest, span, min(claim.expires_at, at + MAX_RECORD_LIFE_S))
    return servers, dropped


def assemble(
    swarm: str,
    at: float,
    models: Mapping[str, ModelRecord],
    readings: Mapping[str, Reading],
    visits: Mapping[str, Visit] | None,
    dropped: Iterable[Dropped] = (),
    known: Mapping[str, Mapping[str, Server]] | None = None,
    conflicts: Mapping[str, str] | None = None,
) -> Snapshot:
    """The snapshot. With `visits` None, announcements are believed (a block server's own view); otherwise an announced server
    that nobody visited is `not checked` and one that did not answer `unreachable`: announced is not served.

    `known` holds by prefix and peer id the servers seen before: one whose record is gone counts as long as it answers.
    """
    left_out = list(dropped)
    assembled: list[Model] = []
    for prefix, record in sorted(models.items()):
        reading = readings.get(prefix, Reading({}))
        found, bad = read_servers(prefix, record.num_blocks, reading, at)
        left_out.extend(bad)
        before = (known or {}).get(prefix, {})
        unread = frozenset(b for b in range(record.num_blocks) if block_uid(prefix, b) in reading.unread)
        servers = [
            judged(peer_id, announced, span, expires_at, visits, before.get(peer_id))
            for peer_id, (announced, span, expires_at) in found.items()
        ]
        servers += [
            without_record(server, visit, unread)
            for peer_id, server in before.items()
            if peer_id not in found and (visit := (visits or {}).get(peer_id)) is not None and visit.answered
        ]
        ordered = tuple(sorted(servers, key=lambda server: (server.span, server.peer_id)))
        conflict = (conflicts or {}).get(prefix, "")
        assembled.append(Model(prefix, record.num_blocks, record.repository, ordered, unread, conflict))
    return Snapshot(swarm, at, tuple(assembled), tuple(left_out))


def judged(
    peer_id: str,
    record: ServerRecord,
    span: Span,
    expires_at: float,
    visits: Mapping[str, Visit] | None,
    before: Server | None = None,
) -> Server:
    """An announced server, with its own answer above its record: anyone may write a record, nobody else can answer."""
    visit = (visits or {}).get(peer_id)
    state = state_of(record, visits, peer_id)
    if visit is None or not visit.answered:
        return Server(peer_id, span, state, record, expires_at, visit)
    served = visit.span or span
    conflict = ""
    if served != span:
        conflict = f"its record claims {span.in_words()}, but it answers for {served.in_words()}"
    elif record.state is not ServerState.ONLINE:
        conflict = f"its record says {state.value}, but it answers for {served.in_words()}"
    if conflict and before is not None and record.throughput is None:
        record = replace(record, throughput=before.record.throughput)
    return Server(peer_id, served, PeerState.ONLINE, record, expires_at, visit, conflict)


def without_record(before: Server, visit: Visit, unread: frozenset[int]) -> Server:
    """A server that answers though no usable record of it stands in the DHT."""
    span = visit.span or before.span
    missed = any(block in unread for block in span)
    conflict = "" if missed else f"no record of it stands in the DHT now, but it answers for {span.in_words()}"
    return replace(before, span=span, state=PeerState.ONLINE, visit=visit, conflict=conflict)


def state_of(record: ServerRecord, visits: Mapping[str, Visit] | None, peer_id: str) -> PeerState:
    if record.state is ServerState.OFFLINE:
        return PeerState.LEAVING
    if record.state is ServerState.JOINING:
        return PeerState.JOINING
    if visits is None:
        return PeerState.ONLINE
    visit = visits.get(peer_id)
    if visit is None:
        return PeerState.NOT_CHECKED
    return PeerState.ONLINE if visit.answered else PeerState.UNREACHABLE


def _decoded(entry: Entry) -> object:
    if isinstance(entry.value, BadRecord):
        raise entry.value
    return entry.value


def _dropped(key: str, entry: Entry, error: BadRecord) -> Dropped:
    return Dropped(key, repr(entry.subkey)[:80], error.reason, error.detail)


def _add_claim(claims: dict[str, _Claims], peer_id: str, block: int, record: ServerRecord, expires_at: float) -> None:
    claim = claims.setdefault(peer_id, _Claims(record, expires_at))
    if expires_at > claim.expires_at:
        claim.newest, claim.expires_at = record, expires_at
    claim.blocks_by_span[record.span].add(block)


def _span_of(claim: _Claims) -> Span | None:
    """The run of keys that stands for the newest record. Older servers announce no span: then it is their longest run."""
    blocks = claim.blocks_by_span[claim.newest.span]
    if claim.newest.span is not None:
        blocks = {block for block in blocks if block in claim.newest.span}
    return max(runs(blocks), key=lambda run: (len(run), -run.start), default=None)
