"""Who may have cache: a budget in bytes, reservations of sessions, and the end of idle sessions when others wait.

Used from the event loop's thread only. Knows amounts and times; not tensors, nor what a session is beyond being idle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from swarm.errors import RemoteError


class CacheFull(RemoteError):
    """Trying again helps once another session has ended."""


class Reservation:
    """Cache that a session holds. Releasing it twice does no harm."""

    def __init__(self, budget: CacheBudget, amount: int) -> None:
        self._budget = budget
        self.amount = amount

    def release(self) -> None:
        amount, self.amount = self.amount, 0
        self._budget._give_back(amount)


Evict = Callable[[], float | None]
"""Ends the most idle session that may be ended, whose reservation is free when it returns, and answers 0.0; or the seconds
until there will be one; or None where there is no session at all."""


class CacheBudget:
    """`capacity` bytes, given to sessions first come, first served. `unit` bytes are one token in one block, for texts."""

    def __init__(self, capacity: int, unit: int = 1, evict: Evict = lambda: None) -> None:
        self.capacity = capacity
        self.unit = unit
        self._evict = evict
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def left(self) -> int:
        return self.capacity - self._held

    @property
    def held(self) -> int:
        return self._held

    @property
    def waiting(self) -> int:
        """Sessions that wait for room."""
        return len(self._waiting)

    async def reserve(self, amount: int, timeout_s: float = 0.0) -> Reservation:
        """Takes `amount` now, or within `timeout_s` as others release theirs; CacheFull otherwise."""
        if amount > self.capacity:
            raise CacheFull(
                f"the session needs cache for {self._tokens(amount)} tokens x blocks; "
                f"this server has {self._tokens(self.capacity)} in all"
            )
        while not self._waiting and amount > self.left and self._evict() == 0.0:
            pass
        if amount > self.left or self._waiting:
            await self._wait_for_turn(amount, timeout_s)
        else:
            self._held += amount
        return Reservation(self, amount)

    def _tokens(self, amount: int) -> str:
        return f"{amount // self.unit:,}"

    async def _wait_for_turn(self, amount: int, timeout_s: float) -> None:
        full = (
            f"the cache is full: {self._tokens(amount)} tokens x blocks are needed, "
            f"{self._tokens(self.left)} of {self._tokens(self.capacity)} are free"
        )
        if timeout_s <= 0:
            raise CacheFull(full)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the turn.
            async with asyncio.timeout(timeout_s):
                await self._until(turn)
        except BaseException as error:
            self._leave_queue(amount, turn)
            if isinstance(error, TimeoutError):
                raise CacheFull(f"{full}, and none became free within {timeout_s:g} s") from None
            raise

    async def _until(self, turn: asyncio.Future[None]) -> None:
        """The first in the queue also looks, whenever that may have come true, whether an idle session can be ended."""
        while not turn.done():
            wait_s: float | None = 0.0
            # An eviction serves whoever waits first by itself.
            while self._waiting and wait_s == 0.0:
                wait_s = self._evict()
            await asyncio.wait({turn}, timeout=wait_s)

    def _leave_queue(self, amount: int, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self._give_back(amount)
        else:
            self._waiting.remove((amount, turn))
            self._serve_waiting()

    def _give_back(self, amount: int) -> None:
        self._held -= amount
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.left:
            amount, turn = self._waiting.popleft()
            self._held += amount
            turn.set_result(None)
