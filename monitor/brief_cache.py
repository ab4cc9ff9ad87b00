"""Django's cache in Redis, which waits for a silent Redis once in a while instead of at every call.

A Redis that is frozen refuses nothing: each call waits until its time limit. A page that makes several calls, and a hundred
readers of it, would each pay that limit anew. What has just not answered is not asked again for a few seconds.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis import Redis
from redis.exceptions import TimeoutError as NoAnswer

NOT_ASKED_FOR_S = 5.0
"""After a call without an answer. Nothing that is kept here matters for longer than that: counts of a minute, nonces, what was
pushed last."""

monotonic = time.monotonic


class Patience:
    """With one Redis, shared by all threads of a process: Django makes a cache for each of them. That two wait at once does no
    harm."""

    def __init__(self) -> None:
        self._silent_until = 0.0

    def check(self) -> None:
        if monotonic() < self._silent_until:
            raise NoAnswer("Redis did not answer a moment ago")

    def lose(self) -> None:
        self._silent_until = monotonic() + NOT_ASKED_FOR_S


@functools.cache
def patience_with(servers: tuple[str, ...]) -> Patience:
    return Patience()


class BriefRedis(Redis):
    def __init__(self, *args: Any, patience: Patience, **options: Any) -> None:
        super().__init__(*args, **options)
        self._patience = patience

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Raises redis.exceptions.TimeoutError, like the call itself, where Redis did not answer a moment ago."""
        self._patience.check()
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except NoAnswer:
            self._patience.lose()
            raise


class BriefClient(RedisCacheClient):
    def __init__(self, servers: list[str], **options: Any) -> None:
        super().__init__(servers, **options)
        self._patience = patience_with(tuple(servers))

    def get_client(self, key: Any = None, *, write: bool = False) -> BriefRedis:
        pool = super().get_client(key, write=write).connection_pool
        return BriefRedis(connection_pool=pool, patience=self._patience)


class BriefCache(RedisCache):
    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = BriefClient
