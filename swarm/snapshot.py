"""One swarm at one instant: which models there are, who claims which blocks, who answered when visited, what could not be read.

Pure: readings, visits and the time come in, a frozen Snapshot goes out. A server's own answer beats its record, a bad
record costs only itself, and what could not be read is kept apart from what is not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from swarm.claims import MAX_RECORD_LIFE_S as MAX_RECORD_LIFE_S
from swarm.claims import Claim, read_servers
from swarm.errors import BadRecord
from swarm.readings import Dropped as Dropped
from swarm.readings import Entry as Entry
from swarm.readings import Reading as Reading
from swarm.readings import decoded
from swarm.readings import dropped as dropped_of
from swarm.wire.keys import MAX_BLOCKS, MODELS_KEY, block_uid, parse_prefix
from swarm.wire.records import ModelRecord, ServerRecord, ServerState, parse_model_record
from swarm.wire.spans import Span

LOADING_LIMIT_S = 7_200.0
"""Nobody waits longer for a server that is said to load: a lease stands no longer either, and anyone can say so of anyone."""

SLOW_AFTER_S = 1_800.0
"""Who has said for so long that it loads blocks that no server has online keeps no others from them: anyone can say so. Three
times as long as by a lease, which somebody has signed: without one nobody counts how many are on their way."""


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
    WRONG_ANSWER = "wrong answer"
    """It answers for its blocks, and what it computes with them is nothing (`swarm.answers`)."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One dial of one server, asking it for the blocks at the edges of its span. `detail` is the raw text of an error.

    `span` is the one that it was asked for, `addresses` those that were tried, `via` direct or relay where that is known.
    `network` stands for the network that it sits in, without saying which: the same text for peers of the same one.
    `said` is what the server itself says of its state where that is not "online": Petals' servers say nothing.
    `backed_off`: some of the addresses were not dialled at all, since a dial of a while ago had failed.
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
    said: PeerState | None = None
    backed_off: bool = False

    @property
    def answered(self) -> bool:
        return self.outcome is Outcome.ANSWERED

    @property
    def reached(self) -> bool:
        """Whether anybody was there, whatever was said."""
        return self.outcome in (
            Outcome.ANSWERED, Outcome.NOT_HELD, Outcome.PROTOCOL_ABSENT, Outcome.ERROR, Outcome.WRONG_ANSWER
        )  # fmt: skip


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
    `loading_since` is when it was first seen to load, without a break; `slow` says that others are sent to the same blocks
    if nobody has them, `overdue` that nobody waits for so long.
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
    loading_since: float | None = None
    overdue: bool = False
    slow: bool = False

    @property
    def awaited(self) -> bool:
        """Whether it loads blocks that may be counted on: somebody is there, and not for longer than loading takes. Where
        nobody visits servers (`visit` is None), announcements are believed."""
        return self.state is PeerState.JOINING and not self.overdue and (self.visit is None or self.visit.reached)


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
    """`served` are the models of which a server has ever been online, the longest known first; empty where whoever made this
    remembers nothing but the instant."""

    swarm: str
    at: float
    models: tuple[Model, ...]
    dropped: tuple[Dropped, ...] = ()
    served: tuple[str, ...] = ()

    def model(self, prefix: str) -> Model | None:
        return next((model for model in self.models if model.prefix == prefix), None)


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
            dropped.append(dropped_of(MODELS_KEY, entry, error))
            continue
        try:
            record = parse_model_record(decoded(entry))
        except BadRecord as error:
            dropped.append(dropped_of(MODELS_KEY, entry, error))
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
    return max((claim.span.end for claim in servers.values()), default=None)


def _contradiction(record: ModelRecord, other: ModelRecord) -> str:
    if record.num_blocks != other.num_blocks:
        return f"the index of models also says {record.num_blocks} blocks; {other.num_blocks} stands"
    return f"the index of models also names {record.repository or 'no repository'}; {other.repository or 'none'} stands"


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

    `known` holds by prefix and peer id the servers seen before: one whose record is gone counts as long as it answers, and one
    that loads has done so since it was first seen to.
    """
    left_out = list(dropped)
    assembled: list[Model] = []
    for prefix, record in sorted(models.items()):
        reading = readings.get(prefix, Reading({}))
        found, bad = read_servers(prefix, record.num_blocks, reading, at)
        left_out.extend(bad)
        before = (known or {}).get(prefix, {})
        unread = frozenset(b for b in range(record.num_blocks) if block_uid(prefix, b) in reading.unread)
        servers = [judged(peer_id, claim, at, visits, before.get(peer_id)) for peer_id, claim in found.items()]
        servers += [
            without_record(server, visit, unread, at)
            for peer_id, server in before.items()
            if peer_id not in found and (visit := (visits or {}).get(peer_id)) is not None and visit.answered
        ]
        ordered = tuple(sorted(servers, key=lambda server: (server.span, server.peer_id)))
        conflict = (conflicts or {}).get(prefix, "")
        assembled.append(Model(prefix, record.num_blocks, record.repository, ordered, unread, conflict))
    return Snapshot(swarm, at, tuple(assembled), tuple(left_out))


def judged(peer_id: str, claim: Claim, at: float, visits: Mapping[str, Visit] | None, before: Server | None = None) -> Server:
    """An announced server, with its own answer above its record: anyone may write a record, nobody else can answer."""
    record, span, expires_at, _ = claim
    visit = (visits or {}).get(peer_id)
    state = state_of(record, visits, peer_id)
    if visit is None or not visit.answered:
        server = Server(peer_id, span, state, record, expires_at, visit)
        return _since_when(server, record.state is ServerState.JOINING, at, before)
    served = visit.span or span
    if visit.said is not None:
        # Its own word: it has loaded and checks itself, or its last sessions end. Nobody is to count on it yet, or any more.
        server = Server(peer_id, served, visit.said, record, expires_at, visit)
        return _since_when(server, visit.said is PeerState.JOINING, at, before)
    conflict = ""
    # Where a key of it was lost, the record itself claims more than its keys bear out.
    if served not in (span, record.span):
        conflict = f"its record claims {span.in_words()}, but it answers for {served.in_words()}"
    elif record.state is not ServerState.ONLINE:
        conflict = f"its record says {state.value}, but it answers for {served.in_words()}"
    if conflict and before is not None and record.throughput is None:
        record = replace(record, throughput=before.record.throughput)
    return Server(peer_id, served, PeerState.ONLINE, record, expires_at, visit, conflict)


def is_slow(loading_since: float | None, at: float) -> bool:
    return loading_since is not None and at - loading_since > SLOW_AFTER_S


def is_overdue(loading_since: float | None, at: float) -> bool:
    return loading_since is not None and at - loading_since > LOADING_LIMIT_S


def _since_when(server: Server, loads: bool, at: float, before: Server | None) -> Server:
    """With the time since which it is said to load, whoever says so: nobody may say it for ever."""
    since = at if before is None or before.loading_since is None else before.loading_since
    return replace(server, loading_since=since, overdue=is_overdue(since, at), slow=is_slow(since, at)) if loads else server


def _settled(server: Server) -> Server:
    """As if it had never been seen to load."""
    return replace(server, loading_since=None, overdue=False, slow=False)


def without_record(before: Server, visit: Visit, unread: frozenset[int], at: float) -> Server:
    """A server that answers though no usable record of it stands in the DHT."""
    span = visit.span or before.span
    if visit.said is not None:
        server = replace(_settled(before), span=span, state=visit.said, visit=visit, conflict="")
        return _since_when(server, visit.said is PeerState.JOINING, at, before)
    missed = any(block in unread for block in span)
    conflict = "" if missed else f"no record of it stands in the DHT now, but it answers for {span.in_words()}"
    return replace(_settled(before), span=span, state=PeerState.ONLINE, visit=visit, conflict=conflict)


def state_of(record: ServerRecord, visits: Mapping[str, Visit] | None, peer_id: str) -> PeerState:
    if record.state is ServerState.OFFLINE:
        return PeerState.LEAVING
    if visits is not None and peer_id not in visits:
        return PeerState.NOT_CHECKED
    if record.state is ServerState.JOINING:
        return PeerState.JOINING
    return PeerState.ONLINE if visits is None or visits[peer_id].answered else PeerState.UNREACHABLE
