"""How many requests of block servers are worked on at once, and for how long the others wait for their turn.

It stands in front of Django. Who waits here costs a few kilobytes; in Django each would hold a thread and a connection to
Postgres, also long after its server has given up. Whoever would wait too long is told when to come back. Knows addresses and
time, and nothing of hints.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext

Message = Mapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SEATS = 2
"""Of each lane. Questions about one model are answered one after another anyway; the second is for another model."""
PATIENCE_S = 2.0
"""A server gives up after 5 s. What is begun later than this would often be answered to nobody."""
MOST_WAITING = 2_000
"""Of each lane: many more than are answered in so long."""
LANES = {
    "questions": r"hint",
    # What has been promised goes on while all the others ask.
    "steps": r"lease/[^/]+/[a-z]+",
    "rest": r"hint/nonce|report",
}


class Lane:
    """`seats` threads, each with its own connection to Postgres, which it keeps."""

    def __init__(self, seats: int, patience_s: float, most_waiting: int) -> None:
        self._patience_s, self._most_waiting = patience_s, most_waiting
        # The one that was used last is the first to be used again: the others' connections may be closed.
        self._free: asyncio.LifoQueue[ThreadPoolExecutor] = asyncio.LifoQueue()
        for _ in range(seats):
            self._free.put_nowait(ThreadPoolExecutor(max_workers=1))
        self._waiting = 0

    async def take(self) -> ThreadPoolExecutor | None:
        """A seat, to be given back; None where there was none in time. First come, first served."""
        if self._waiting >= self._most_waiting:
            return None
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                return await self._free.get()
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1

    def give_back(self, seat: ThreadPoolExecutor) -> None:
        self._free.put_nowait(seat)


class Turns:
    """An ASGI application around `inner`; `refuse` answers those whose turn does not come."""

    def __init__(
        self,
        inner: Application,
        refuse: Application,
        seats: int = SEATS,
        patience_s: float = PATIENCE_S,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._inner, self._refuse = inner, refuse
        self._lanes = [(_path(ends), Lane(seats, patience_s, most_waiting)) for ends in LANES.values()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = _lane(self._lanes, scope)
        if lane is None:
            await self._inner(scope, receive, send)
            return
        seat = await lane.take()
        if seat is None:
            await self._refuse(scope, receive, send)
            return
        try:
            # Django would make a thread for each request, and with it a connection.
            async with ThreadSensitiveContext(executor=seat):
                await self._inner(scope, receive, send)
        finally:
            lane.give_back(seat)


def _path(ends: str) -> re.Pattern[str]:
    return re.compile(rf"(/s/[A-Za-z0-9_\-]+)?/api/v1/({ends})/?")


def _lane(lanes: Iterable[tuple[re.Pattern[str], Lane]], scope: Scope) -> Lane | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    return next((lane for path, lane in lanes if path.fullmatch(scope["path"])), None)
