"""How often one address may ask for messages to be sent: each goes to somebody else.

Counted in Redis, in windows of an hour.
"""

from __future__ import annotations

import time

from django.core.cache import cache
from redis.exceptions import RedisError

WINDOW_S = 3_600
ASKED_AN_HOUR = 10
"""A person who sets up alerts for a few models and servers; more is a script."""
TESTS_AN_HOUR = 12


class TooMany(Exception):
    """`retry_after_s` until the hour ends."""

    def __init__(self, words: str, retry_after_s: int) -> None:
        super().__init__(words)
        self.retry_after_s = retry_after_s


def count(what: str, who: str, times: int) -> None:
    """Raises TooMany; also where it cannot be counted, since what is not counted is not limited."""
    moment = time.time()
    window = int(moment // WINDOW_S)
    key = f"alerts.{what}.{who}.{window}"
    try:
        cache.add(key, 0, timeout=2 * WINDOW_S)
        used = cache.incr(key)
    except (RedisError, ValueError) as error:
        raise TooMany("This cannot be done at the moment. Try again in a minute.", 60) from error
    if used > times:
        raise TooMany(
            f"More than {times} times an hour are too many. Try again later.", int((window + 1) * WINDOW_S - moment) + 1
        )
