"""How much of a reported throughput is believed. Nothing in a record is signed or measured by us, and placement follows it:
5 % of servers that report ten times their speed would halve the bottleneck.

Knows records, measured rates and how long a server has been seen; not how anyone measures. Both numbers, the reported and the
believed one, are shown, with the reason why they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from swarm.snapshot import Model, PeerState, Timing
from swarm.wire.records import ServerRecord

SLACK = 1.25
"""Queues and the measurer's own line pull a measured rate down; more than so much above it is not believed."""
SETTLED_S = 3600.0
"""Who is not measured counts as a usual server at most for this long."""
TOP_SHARE = 0.1
"""Without any measurement, this share of the figures is cut down to the next lower one: twice the liars to expect."""
RESOLVED_S = 0.002
"""Differences below this are the scheduler's, not the server's."""
WINDOW_ROUND_TRIPS = 5
"""Round trips that TCP takes to open its window for the tokens of a probe."""
WEIGHT_TOKENS = 32
"""A card reads a block's weights in the time in which it computes about so many tokens; servers measure themselves with a
thousand, a probe with fewer."""
RELAY_SHARE = 0.2
"""What Petals counts of a line when traffic goes through a relay."""
LINE_TOKENS_PER_S = 80_000.0
"""Hidden states of 2,048 half-precision numbers over 2.6 Gbit/s: no volunteer's line passes more."""
CLIENTS_NEEDED = 3
"""Fewer witnesses prove nothing: a peer id costs nothing, an address little."""
DOUBTED_SHARE = 0.5
"""Of a usual server, for one whose answers are doubted: quick nonsense must gain nothing, and a crowd that frames an honest
server must not take it out of the plan."""
CLIENTS_LEAST = 0.5
"""Clients see one server among others, from where they sit; and whoever would demote a peer poses as a few of them. They lower
what is believed to half at most, and never raise it."""
_UNDECLARED = 4_000_000.0
_COMPUTE: Mapping[str, float] = {
    "float32": 1_000_000.0,
    "float16": 4_000_000.0,
    "bfloat16": 4_000_000.0,
    "int8": 3_000_000.0,
    "nf4": 2_000_000.0,
}
"""Tokens x blocks per second that the fastest card in use reaches with blocks of a small model (1 billion parameters), by the
declared quantisation or else the declared type. Generous: it stops absurd figures, measurements stop the likely ones."""


class Basis(StrEnum):
    """What a believed rate rests on."""

    REPORTED = "reported"
    UNKNOWN = "unknown"
    INCONSISTENT = "its own figures"
    DEVICE = "device class"
    MEASURED = "measured"
    NEWCOMER = "newcomer"
    UNMEASURED = "not measured"
    CROWD = "other servers"
    CLIENTS = "clients"
    ANSWERS = "its answers"


@dataclass(frozen=True, slots=True)
class Belief:
    """Tokens per second; None where not known. `reason` is for people."""

    reported: float | None
    believed: float | None
    basis: Basis
    reason: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a server beside its record, in tokens per second: what our own probes measured, newest last, and what
    clients saw, one figure for each witness; and for how long it is seen. `doubted` says what speaks against its answers: then
    how fast they came says nothing."""

    measured: Sequence[float] = ()
    seen_s: float | None = None
    clients: Sequence[float] = ()
    doubted: str = ""

    @property
    def rate(self) -> float | None:
        return median(self.measured) if self.measured and not self.doubted else None


@dataclass(frozen=True, slots=True)
class Crowd:
    """The other servers of the model: what a usual one gives, and above what a figure stands out; and whether at least half of
    them are measured, so that who is not is an exception."""

    usual: float | None = None
    high: float | None = None
    mostly_measured: bool = False


def believe(record: ServerRecord, blocks: int, evidence: Evidence | None = None, crowd: Crowd | None = None) -> Belief:
    """The rate that placement may count on for a server of so many blocks. Never more than what is reported, where that is."""
    known, others = evidence or Evidence(), crowd or Crowd()
    reported = record.throughput
    if reported is None:
        return _of_the_silent(known, others)
    believed, basis, why = reported, Basis.REPORTED, "as reported"
    for limit, name, words in (
        (declared(record, blocks), Basis.INCONSISTENT, "its own compute and network figures allow no more"),
        (device_cap(record, blocks), Basis.DEVICE, "no device of the declared class does more"),
        _limit_by_evidence(reported, known, others),
    ):
        if limit is not None and limit < believed:
            believed, basis, why = limit, name, words
    if len(known.clients) >= CLIENTS_NEEDED and (told := median(known.clients) * SLACK) < believed:
        words = f"{len(known.clients)} clients saw {median(known.clients):,.1f} tokens/s"
        return Belief(reported, max(told, believed * CLIENTS_LEAST), Basis.CLIENTS, words)
    return Belief(reported, believed, basis, why)


def _of_the_silent(known: Evidence, others: Crowd) -> Belief:
    if known.doubted and others.usual is not None:
        return Belief(None, DOUBTED_SHARE * others.usual, Basis.ANSWERS, _half(known))
    if known.rate is None:
        return Belief(None, None, Basis.UNKNOWN, "neither reported nor measured")
    return Belief(None, known.rate, Basis.MEASURED, "not reported; measured")


def _limit_by_evidence(reported: float, known: Evidence, others: Crowd) -> tuple[float | None, Basis, str]:
    if known.doubted:
        # Where nobody knows what is usual, half of what it says.
        return DOUBTED_SHARE * (reported if others.usual is None else others.usual), Basis.ANSWERS, _half(known)
    if known.rate is not None:
        return known.rate * SLACK, Basis.MEASURED, f"measured at {known.rate:,.1f} tokens/s"
    if known.seen_s is not None and known.seen_s < SETTLED_S:
        return others.usual, Basis.NEWCOMER, "new here and not measured yet, so no more than a usual server"
    if others.mostly_measured:
        # However long it is there: who is always busy when it is to be measured must gain nothing by it.
        return others.usual, Basis.UNMEASURED, "not measured while most others are, so no more than a usual server"
    return others.high, Basis.CROWD, "not measured, and far above the other servers"


def _half(known: Evidence) -> str:
    return f"{known.doubted}, so no more than half a usual server"


def rate_of(timing: Timing) -> float:
    """Tokens per second as servers announce them: 2 x compute / (blocks + 1), or the line where that carries less.

    Rather too much than too little, since it is held against somebody. The line's share is what one block's pass takes beyond
    its computing and a few round trips, in which TCP opens its window; the tokens travel both ways.
    """
    more = timing.blocks - 1
    computing_s = timing.whole_s - timing.one_s if more else timing.one_s - timing.round_trip_s
    per_block_s = max(computing_s, RESOLVED_S) / max(1, more)
    announced = 2.0 * timing.tokens / per_block_s * (1.0 + WEIGHT_TOKENS / timing.tokens) / (timing.blocks + 1)
    line_s = timing.one_s - per_block_s - WINDOW_ROUND_TRIPS * timing.round_trip_s
    return announced if line_s < RESOLVED_S else min(announced, 2.0 * timing.tokens / line_s)


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a client: `seconds` for its tokens through `blocks` blocks of a server that serves `served` in all, from the
    client and back to it; `round_trip_s` is how far that is."""

    tokens: int
    blocks: int
    served: int
    seconds: float
    round_trip_s: float


def rate_of_pass(one: Pass, line_s: float) -> float | None:
    """As `rate_of`, of what a client saw. None where the way took all of it: that says how far a server is, not how fast.

    `line_s` is the least that any pass of this client took for a token: its own line carries as much, and what a server takes
    beyond that is the server's. So the quickest server of all is never told, and who is told is told rather too fast.
    """
    computing_s = one.seconds - WINDOW_ROUND_TRIPS * one.round_trip_s - one.tokens * line_s
    if computing_s < RESOLVED_S:
        return None
    return 2.0 * one.tokens * one.blocks / computing_s * (1.0 + WEIGHT_TOKENS / one.tokens) / (one.served + 1)


def declared(record: ServerRecord, blocks: int) -> float | None:
    """What the record's own compute and network figures come to, by the formula with which they are announced."""
    compute = None if record.forward_rps is None else 2.0 * record.forward_rps / (blocks + 1)
    figures = [figure for figure in (compute, record.network_rps) if figure is not None]
    # Petals measures a little differently from release to release; a tenth above is no contradiction.
    return 1.1 * min(figures) if figures else None


def device_cap(record: ServerRecord, blocks: int) -> float:
    """What the fastest device of the declared class could announce for a span of so many blocks."""
    kind = record.quant_type if record.quant_type in _COMPUTE else record.torch_dtype
    compute = 2.0 * _COMPUTE.get(kind or "", _UNDECLARED) / (blocks + 1)
    return min(compute, LINE_TOKENS_PER_S * (RELAY_SHARE if record.using_relay else 1.0))


def crowd_of(rates: Iterable[float]) -> Crowd:
    """`rates` are what can be said of each server before it is compared with others. Of one or two, nothing stands out."""
    ordered = sorted(rates)
    if len(ordered) < 3:
        return Crowd()
    cut = max(1, round(TOP_SHARE * len(ordered)))
    return Crowd(median(ordered), ordered[-1 - cut])


def believed_rates(model: Model, evidence: Mapping[str, Evidence] | None = None) -> dict[str, Belief]:
    """A belief for every server that serves or loads, by peer id. Where half of the others of a server are measured, that sets
    what is usual, also of one or two: a measured figure is no boast."""
    known = evidence or {}
    serving = [server for server in model.servers if server.state is PeerState.ONLINE or server.awaited]
    rates = (known[server.peer_id].rate for server in serving if server.peer_id in known)
    measured = [rate for rate in rates if rate is not None]
    sound = [s for s in serving if s.peer_id not in known or not known[s.peer_id].doubted]
    alone = (believe(s.record, len(s.span), known.get(s.peer_id)).believed for s in sound)
    if measured and len(measured) >= (len(sound) - 1) / 2:
        crowd = Crowd(median(measured), crowd_of(measured).high, mostly_measured=True)
    else:
        crowd = crowd_of(rate for rate in alone if rate is not None)
    return {s.peer_id: believe(s.record, len(s.span), known.get(s.peer_id), crowd) for s in serving}
