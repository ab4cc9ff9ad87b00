"""How far the first check has come, from the crawl to the pages: kept in Redis by a thread of its own, so that no crawl waits
for it. The database knows nothing of it. Once anything is published nobody tells and nobody asks.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from django.core.cache import cache
from redis.exceptions import RedisError

from monitor.progress import Progress, Stage, Tell

log = logging.getLogger(__name__)

TOLD_EVERY_S = 1.0
"""The page is pushed every two seconds at most."""
SIGN_OF_LIFE_S = 5.0
"""So often it is told that nothing has changed."""
KEPT_S = 86_400


def heard(swarm: str, now: float) -> Progress | None:
    """None where Redis does not answer: then nothing is known."""
    try:
        told = cache.get(_key(swarm))
        if told is None:
            # From now on it is known for how long nobody has reported.
            cache.add(_key(swarm), Progress(now, now).as_json(), timeout=KEPT_S)
            told = cache.get(_key(swarm))
    except RedisError as error:
        log.warning("how far the first check is cannot be told: Redis does not answer (%s)", error)
        return None
    return Progress.from_json(told) if told is not None else None


@contextlib.contextmanager
def telling(swarm: str, push: Callable[[], None]) -> Iterator[Tell]:
    """What is told within the block is kept within a second, and then `push` is called."""
    teller = _Teller(swarm, push)
    teller.start()
    try:
        yield teller.tell
    finally:
        teller.end()


class _Teller(threading.Thread):
    def __init__(self, swarm: str, push: Callable[[], None]) -> None:
        super().__init__(name="progress", daemon=True)
        self._swarm, self._push = swarm, push
        self._begun_at = time.time()
        self._ended = threading.Event()
        self._stage: Stage | None = None
        self._counts: dict[Stage, tuple[int, int]] = {}

    def tell(self, stage: Stage, done: int, of: int) -> None:
        self._counts[stage] = (done, of)
        self._stage = stage

    def run(self) -> None:
        kept: tuple[Stage, dict[Stage, tuple[int, int]]] | None = None
        kept_at = 0.0
        while not self._ended.wait(TOLD_EVERY_S):
            if self._stage is None:
                continue
            now = (self._stage, dict(self._counts))
            if now != kept or time.monotonic() - kept_at >= SIGN_OF_LIFE_S:
                self._keep(*now)
                kept, kept_at = now, time.monotonic()

    def end(self) -> None:
        """The crawl's own row tells from now on how it went."""
        self._ended.set()
        self.join()
        if self._stage is not None:
            with contextlib.suppress(RedisError):
                cache.delete(_key(self._swarm))

    def _keep(self, stage: Stage, counts: dict[Stage, tuple[int, int]]) -> None:
        try:
            told = Progress(self._begun_at, time.time(), stage, counts).as_json()
            cache.set(_key(self._swarm), told, timeout=KEPT_S)
        except RedisError:
            return
        self._push()


def _key(swarm: str) -> str:
    return f"progress.{swarm}"
