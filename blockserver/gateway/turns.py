"""Whose turn is it? So many at once, and among those who wait the caller who has the fewest running, and of several such the
one whose last turn is longest ago.

A caller is a name; the queue of each is first in, first out. Knows nothing of what is done in a turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Tell = Callable[[int], None]


class NoRoom(Exception):
    """The queue is full. `yours`: the caller's own part of it is."""

    def __init__(self, waiting: int, yours: bool) -> None:
        super().__init__(f"{waiting} wait already")
        self.waiting, self.yours = waiting, yours


@dataclass(eq=False, slots=True)
class Ticket:
    caller: str
    number: int
    tell: Tell = field(repr=False)
    turn: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    told: int | None = None


def in_order(waiting: Iterable[Ticket], running: Mapping[str, int], last_turn: Mapping[str, int]) -> list[Ticket]:
    """Those who wait, the next one first, as it will be if nobody else comes and nobody ends.

    `last_turn` numbers the callers by when their last turn began; who is not in it has had none.
    """
    queues: dict[str, list[Ticket]] = {}
    for ticket in sorted(waiting, key=lambda ticket: ticket.number, reverse=True):
        queues.setdefault(ticket.caller, []).append(ticket)
    served, last = Counter(running), dict(last_turn)
    order: list[Ticket] = []
    while queues:
        caller = min(queues, key=lambda name: (served[name], last.get(name, 0), queues[name][-1].number))
        order.append(queues[caller].pop())
        served[caller] += 1
        last[caller] = max(last.values(), default=0) + 1
        if not queues[caller]:
            del queues[caller]
    return order


class Turns:
    """Use it as `async with turns.turn(caller)`."""

    def __init__(self, at_once: int, waiting_at_most: int, waiting_each: int) -> None:
        self._at_once, self._waiting_at_most, self._waiting_each = at_once, waiting_at_most, waiting_each
        self._running: Counter[str] = Counter()
        self._waiting: list[Ticket] = []
        self._last_turn: dict[str, int] = {}
        """Of callers who are here; of others nothing is kept."""
        self._issued = self._begun = 0

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, caller: str, tell: Tell = lambda before: None, within_s: float | None = None) -> AsyncIterator[None]:
        """`tell` hears how many come before, whenever that changes. Raises NoRoom, also where no turn came in time."""
        ticket = self._join(caller, tell)
        try:
            try:
                async with asyncio.timeout(within_s):
                    await ticket.turn.wait()
            except TimeoutError:
                raise NoRoom(self.waiting, yours=False) from None
            yield
        finally:
            self._leave(ticket)

    def _join(self, caller: str, tell: Tell) -> Ticket:
        own = sum(ticket.caller == caller for ticket in self._waiting)
        if self.running >= self._at_once:
            if own >= self._waiting_each:
                raise NoRoom(own, yours=True)
            if self.waiting >= self._waiting_at_most:
                raise NoRoom(self.waiting, yours=False)
        self._issued += 1
        ticket = Ticket(caller, self._issued, tell)
        self._waiting.append(ticket)
        self._go_on()
        return ticket

    def _leave(self, ticket: Ticket) -> None:
        if ticket.turn.is_set():
            self._running -= Counter({ticket.caller: 1})
        else:
            self._waiting.remove(ticket)
        self._go_on()
        if not self._running[ticket.caller] and not any(other.caller == ticket.caller for other in self._waiting):
            self._last_turn.pop(ticket.caller, None)

    def _go_on(self) -> None:
        order = in_order(self._waiting, self._running, self._last_turn)
        free = max(0, self._at_once - self.running)
        for ticket in order[:free]:
            self._waiting.remove(ticket)
            self._running[ticket.caller] += 1
            self._begun += 1
            self._last_turn[ticket.caller] = self._begun
            ticket.turn.set()
        for before, ticket in enumerate(order[free:]):
            if ticket.told != before:
                ticket.told = before
                ticket.tell(before)
