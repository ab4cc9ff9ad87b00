"""One listener's stream: what it missed, then what happens, and a beat in between. Ends with the connection.

Events come over Redis. Where it is down they are found in the database at the next beat, so that nothing is lost but time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.db import DatabaseError, connection
from redis.exceptions import RedisError

from monitor import queries
from monitor.feeds import events
from monitor.feeds.changes import Kind, snapshot_data

log = logging.getLogger(__name__)

BEAT_S = 15.0
"""Proxies close what is silent for a minute, some for half of one."""

P = ParamSpec("P")
R = TypeVar("R")


class Stream:
    """An async iterator of text. `free` is called once it ends, however it ends, or `close` is called before it began."""

    def __init__(self, swarm: str, last: int | None, free: Callable[[], None], beat_s: float = BEAT_S) -> None:
        self._swarm, self._last, self._beat_s = swarm, last, beat_s
        self.close = free

    async def __aiter__(self) -> AsyncIterator[str]:
        ear = _Ear(self._swarm)
        try:
            # Listening comes first: what happens while the past is read must not fall in between.
            await ear.open()
            yield events.greeting()
            for text in await self._first():
                yield text
            while True:
                message = await ear.hear(self._beat_s)
                said = await self._news(message)
                for text in said or ([events.BEAT] if message is None else []):
                    yield text
        except DatabaseError as error:
            log.warning("a stream ends: the database does not answer (%s)", type(error).__name__)
        finally:
            self.close()
            await ear.close()

    async def _first(self) -> list[str]:
        """What was missed; or where it cannot be told any more, the state as it is."""
        missed = await _in_database(events.since)(self._swarm, self._last) if self._last is not None else None
        if missed is not None:
            return self._told(missed)
        resumed = {"resumed": False} if self._last is not None else {}
        self._last = await _in_database(events.newest)(self._swarm)
        seen = await _in_database(queries.watch)(self._swarm)
        return [events.event_text(self._last, Kind.SNAPSHOT, {**snapshot_data(seen), **resumed})]

    async def _news(self, message: dict[str, Any] | None) -> list[str]:
        if message is not None and self._last is not None and message["after"] <= self._last:
            return self._told([tuple(event) for event in message["events"] if event[0] > self._last])
        # A beat without news, or news with a gap before them.
        found = await _in_database(events.since)(self._swarm, self._last or 0)
        return await self._first() if found is None else self._told(found)

    def _told(self, found: list[Any]) -> list[str]:
        if found:
            self._last = found[-1][0]
        return [events.event_text(number, kind, data) for number, kind, data in found]


class _Ear:
    """A subscription that may fail to be one: `hear` then only waits."""

    def __init__(self, swarm: str) -> None:
        self._group = events.group_of(swarm)
        self._layer: Any = get_channel_layer()
        self._channel = ""
        self._waiting: asyncio.Task[dict[str, Any]] | None = None

    async def open(self) -> None:
        try:
            channel = await self._layer.new_channel()
            await self._layer.group_add(self._group, channel)
            self._channel = channel
        except (RedisError, OSError) as error:
            log.warning("a stream polls: Redis does not answer (%s)", error)

    async def hear(self, within_s: float) -> dict[str, Any] | None:
        """The next message, or None once the time is over."""
        if not self._channel:
            await asyncio.sleep(within_s)
            await self.open()
            return None
        # The layer unsubscribes when it is cancelled, so one call waits on over many beats.
        self._waiting = self._waiting or asyncio.ensure_future(self._layer.receive(self._channel))
        done, _ = await asyncio.wait({self._waiting}, timeout=within_s)
        if not done:
            return None
        finished, self._waiting = self._waiting, None
        return finished.result()

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if not self._channel:
            return
        try:
            await self._layer.group_discard(self._group, self._channel)
        except (RedisError, OSError) as error:
            log.warning("a stream could not unsubscribe: Redis does not answer (%s)", error)


def _in_database(call: Callable[P, R]) -> Any:
    """On a thread of the common pool, without keeping a connection: a stream lives for hours and reads for milliseconds."""

    def closing(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        finally:
            connection.close()

    return sync_to_async(closing, thread_sensitive=False)
