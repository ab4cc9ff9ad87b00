"""How often one address may ask, counted in Redis in windows of a minute. Reads are answered also while Redis is down."""

from __future__ import annotations

import ipaddress
import logging
import time
from dataclasses import dataclass

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from redis.exceptions import RedisError

from monitor.reachability import caller_address

log = logging.getLogger(__name__)

WINDOW_S = 60


@dataclass(frozen=True, slots=True)
class Limit:
    """`times` in a minute, for each address or peer."""

    name: str
    times: int


READS_OF_AN_ADDRESS = Limit("read", 1_200)
"""Reads that have to be computed; those that lie ready cost nothing and are not counted. Twenty a second is more than a
dashboard with a panel for each model asks for."""
DIALS_OF_AN_ADDRESS = Limit("dial", 60)
"""Each takes a thread of the crawl worker for up to 8 s. A server asks four times a minute while it starts."""


class TooMany(Exception):
    """`retry_after_s` until the window ends."""

    def __init__(self, limit: Limit, retry_after_s: int) -> None:
        super().__init__(f"more than {limit.times} requests a minute; ask again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


def count(limit: Limit, who: str, now: float | None = None, times: int = 1) -> None:
    """Raises TooMany where `who` has used up this minute. `times`: what is asked for may cost as much as several."""
    moment = time.time() if now is None else now
    window = int(moment // WINDOW_S)
    key = f"limit.{limit.name}.{who}.{window}"
    try:
        cache.add(key, 0, timeout=2 * WINDOW_S)
        used = cache.incr(key, times)
    except (RedisError, ValueError) as error:
        # Where signatures matter nothing works without Redis anyway (`coordinator.signatures`); reads need not stop.
        log.warning("not counted: Redis does not answer (%s)", error)
        return
    if used > limit.times:
        raise TooMany(limit, max(1, int((window + 1) * WINDOW_S - moment)))


def address_of(request: HttpRequest) -> str:
    """Who asks, behind our own proxies. An IPv6 customer has a whole /64, so that counts as one."""
    forwarded = request.headers.get("X-Forwarded-For", "")
    text = caller_address(request.META.get("REMOTE_ADDR", ""), forwarded, settings.SEPAL_TRUSTED_PROXIES)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        # A Unix socket has no address: then all callers are one.
        return "unknown"
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else text
