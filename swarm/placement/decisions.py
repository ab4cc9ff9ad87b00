"""What the planner is told beyond the snapshot, and what it answers. Values only; every answer carries its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.placement.words import without_server
from swarm.wire.hints import ReasonCode, Urgency
from swarm.wire.spans import Span

_URGENCY = {
    ReasonCode.HOLE: Urgency.HOLE,
    ReasonCode.CHAIN: Urgency.HOLE,
    ReasonCode.REDUNDANCY: Urgency.REDUNDANCY,
    ReasonCode.BALANCE: Urgency.BALANCE,
}


def urgency_of(code: ReasonCode) -> Urgency:
    """How soon a move for this reason is wanted; arrivals that fill no hole are `arrival`."""
    return _URGENCY.get(code, Urgency.ARRIVAL)


@dataclass(frozen=True, slots=True)
class Promise:
    """An open lease: `peer_id` has been asked to serve `span` and is not yet seen there. `slow` where that takes so long that
    nobody counts on it any more: it is gone from where it was, keeps no blocks from others, and is not asked to move."""

    peer_id: str
    span: Span
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to serve, and why. `gain` is what it is worth in shares of the ideal bottleneck; None where that was not asked."""

    span: Span
    reason_code: ReasonCode
    reason: str
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """`peer_id` leaves `origin` for `target`, which gives the `filled` blocks a server. Those say why where `why` is empty."""

    peer_id: str
    origin: Span
    target: Span
    filled: tuple[int, ...]
    reason_code: ReasonCode = ReasonCode.HOLE
    why: str = ""
    gain: float | None = None

    @property
    def reason(self) -> str:
        return self.why or without_server(self.filled)

    @property
    def placement(self) -> Placement:
        return Placement(self.target, self.reason_code, self.reason, self.gain)


@dataclass(frozen=True, slots=True)
class Advice:
    """To one server: `placement` where it should serve other blocks than now, else None; the reason is there in both cases."""

    reason_code: ReasonCode
    reason: str
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known of servers beyond the snapshot, by peer id. Who is not listed is not known.

    Without circumstances only holes are repaired: nobody is moved for redundancy or throughput by a planner that cannot
    know who has moved a minute ago.
    """

    ages_s: Mapping[str, float] = field(default_factory=dict)
    """How long a server has been there without a break."""
    moved_s_ago: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    """Believed tokens per second (`swarm.throughput`); they take the place of what the record says."""
    operators: Mapping[str, str] = field(default_factory=dict)
    """Operator or network: servers of one go down together, and count once for redundancy."""
    on_disk: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    reloading: int | None = None
    """Servers that are moving now; None: as many as there are promises."""
