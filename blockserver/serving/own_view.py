"""What a server finds by itself in the DHT while it gets no advice: holes, since when, and whether they are its own to fill.

Pure. All servers that look see the same, and by the same planner come to the same mover, without a word between them. So only
what all of them see may decide who that is. How many blocks fit a server it alone knows: that decides what the mover takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from swarm.placement import Advice, Promise, advise, find_holes, mend
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span


def mendable(model: Model) -> frozenset[int]:
    """Blocks without a server, where some server could move for them."""
    return frozenset(block for hole in find_holes(model) for block in hole) if mend(model) else frozenset()


def advise_alone(model: Model, peer_id: str, serving: Span, num_blocks: int, movable: frozenset[str]) -> Advice:
    """As the planner has it for everybody. With as many blocks as fit here only where that plan leaves blocks without a server:
    a span was made shorter because the server is faster with it."""
    advice = advise(model, peer_id, len(serving), serving=serving, movable=movable)
    if advice.placement is None or advice.reason_code is not ReasonCode.HOLE or num_blocks <= len(serving):
        return advice
    moves = mend(model, movable=movable)
    if mendable(model) <= {block for move in moves for block in move.filled}:
        return advice
    others = [Promise(move.peer_id, move.target) for move in moves if move.peer_id != peer_id]
    longer = advise(model, peer_id, num_blocks, serving=serving, promises=others, movable=())
    return longer if longer.placement is not None and longer.placement.span.covers(advice.placement.span) else advice


@dataclass
class Finding:
    """Holes that this server sees by itself, since when, and who had the chance to fill them and did not."""

    holes: frozenset[int]
    since: float
    passed_over: set[str] = field(default_factory=set)

    def movable(self, model: Model, now: float, patience_s: float) -> frozenset[str]:
        """All servers that follow our rule, but those whose turn has passed: the planner's first choice may be one that stays
        for a reason of its own."""
        ours = frozenset(server.peer_id for server in model.servers if server.record.is_ours)
        turns_over = _turns_within((now - self.since) / (2 * patience_s), len(ours))
        while len(self.passed_over) < turns_over:
            chosen = next((move.peer_id for move in mend(model, movable=ours - self.passed_over)), None)
            if chosen is None:
                break
            self.passed_over.add(chosen)
        return ours - self.passed_over


def _turns_within(elapsed: float, most: int) -> int:
    """How many turns are over, of `most`; `elapsed` in lengths of the first one. That lasts twice the time after which its
    server would have moved, and so does the second; the nth after it an nth of that. The more have let their turn pass, the
    less likely it is that the next follows the rule; were each waited for as long, a dozen kept a hole open for half an hour.
    """
    turns, end = 0, 0.0
    # The sum grows as slowly as a logarithm: of a day's turns nobody lives to see the end.
    while turns < most and elapsed >= (end := end + 1.0 / max(1, turns)):
        turns += 1
    return turns
