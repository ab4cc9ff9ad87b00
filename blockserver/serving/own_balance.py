"""When a server that nobody has led for long moves by itself for a second holder or for throughput. Pure; seconds of one clock.

All that look see the same, and each would improve the same weak blocks. So nobody looks often, each at moments of its own; who
wants to move looks a second time, and by then sees who else has left; and while a twentieth of the servers load, nobody leaves.
Holes come first, and are not this file's (`own_view`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from swarm.placement import Circumstances, Move, plan
from swarm.snapshot import Model, PeerState
from swarm.throughput import believed_rates
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span

BALANCE_ALONE_AFTER_S = 3600.0
"""Without advice. A coordinator that is restarted, or moves house, is back before; and half of the servers that vanish early
have done so by then."""
LOOK_EVERY_S = 1800.0
"""From one look to the next, on average."""
SPREAD = (0.5, 1.5)
"""Between which shares of the mean the time to the next look is drawn."""
CONFIRM_SPREAD = (1.0, 2.0)
"""And that to the second look, in lengths of the time for which a finding must stand."""
_ELECTIVE = (ReasonCode.REDUNDANCY, ReasonCode.BALANCE)


def own_move(model: Model, peer_id: str, serving: Span, moved_s_ago: float | None = None) -> Move | None:
    """The best move of `peer_id` alone that is worth its price, with as many blocks as it serves; None to stay. Reports are
    believed as far as they agree with each other: nobody is measured from here."""
    if model.unread_blocks or not any(one.peer_id == peer_id and one.span == serving for one in model.servers):
        return None
    rates = {name: said.believed for name, said in believed_rates(model, {}).items() if said.believed is not None}
    known = Circumstances(
        moved_s_ago={} if moved_s_ago is None else {peer_id: moved_s_ago},
        rates=rates,
        reloading=sum(one.state is PeerState.JOINING for one in model.servers),
    )
    moves = plan(model, movable={peer_id}, known=known)
    return next((move for move in moves if move.peer_id == peer_id and move.reason_code in _ELECTIVE), None)


@dataclass
class OwnBalance:
    """One server's looks. `confirm_s` is for how long a finding must stand at least; `draw` gives a number between two."""

    peer_id: str
    confirm_s: float
    draw: Callable[[float, float], float] = random.uniform
    every_s: float = LOOK_EVERY_S
    intended: Move | None = field(default=None, init=False)
    """Found at the first look; after the second one it is made, or forgotten."""
    _place: tuple[str, Span] | None = field(default=None, init=False)
    _here_since: float = field(default=0.0, init=False)
    _moved_at: float | None = field(default=None, init=False)
    _due: float | None = field(default=None, init=False)

    def note(self, prefix: str, serving: Span, now: float) -> None:
        """Where the server is, told at each question: so it is known when it moved, by whose word ever."""
        if self._place is None:
            self._here_since = now
        elif self._place != (prefix, serving):
            self._moved_at, self.intended = now, None
        self._place = (prefix, serving)

    def here_s(self, now: float) -> float:
        return now - self._here_since if self._place is not None else 0.0

    def rest(self) -> None:
        """Somebody else decides again."""
        self.intended = self._due = None

    def is_due(self, now: float) -> bool:
        """Whether it is time for a look. The first is drawn from a whole interval."""
        if self._due is None:
            self._due = now + self.draw(0.0, 1.0) * self.every_s
        return now >= self._due

    def look(self, model: Model, serving: Span, now: float) -> Move | None:
        """The move to make now. None to stay; `confirms_in_s` says whether there was one and it is to be seen again."""
        moved_s_ago = None if self._moved_at is None else now - self._moved_at
        before, found = self.intended, own_move(model, self.peer_id, serving, moved_s_ago)
        self.intended = None
        if before is None and found is not None:
            self.intended = found
            self._due = now + self.confirm_s * self.draw(*CONFIRM_SPREAD)
            return None
        self._due = now + self.every_s * self.draw(*SPREAD)
        if found is None or before is None or found.target != before.target:
            return None
        # Also where it comes to nothing: what could not be loaded is not tried again at once.
        self._moved_at = now
        return found

    def confirms_in_s(self, now: float) -> float:
        return max(0.0, self._due - now) if self._due is not None else 0.0
