"""Renders each page's parts once and sends those that changed to everyone who has that page open.

Redis carries this. Where it is down nothing is pushed, and pages poll instead: nothing here may fail its caller.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from celery import current_app
from channels.layers import get_channel_layer
from django.core.cache import cache
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from monitor import parts
from monitor.history import pages as history_pages
from monitor.parts import NO_QUERY, Rendered
from monitor.published import Watch
from monitor.queries import watch
from monitor.swarms import named

log = logging.getLogger(__name__)

PUSH_GAP_S = 2
"""At most one push in so many seconds: people read slower, and each push is rendered and parsed."""
PENDING_FOR_S = 30
"""A push that no worker took within this time is asked for anew."""
MESSAGE_LIMIT = 20_000
"""Bytes of one message. What does not fit is named only, and every page fetches it at a moment of its own."""
SENT_KEPT_S = 86_400
"""What was pushed last is remembered for a day; without it everything counts as changed, once."""
CHANGES = "changes"
"""The key of pages that are pushed nothing but the news that there is news: a server's, an incident's, a search."""


def request_push(swarm: str) -> None:
    """Asks for one push soon. Many requests at once end in one; a request during a push ends in another after it."""
    try:
        if not _first(f"push.pending.{swarm}", PENDING_FOR_S):
            return
        wait_s = 0 if _first(f"push.recent.{swarm}", PUSH_GAP_S) else PUSH_GAP_S
        current_app.send_task("monitor.tasks.push", args=[swarm], countdown=wait_s, retry=False, ignore_result=True)
    except (RedisError, OperationalError) as error:
        log.warning("no push: Redis does not answer (%s)", error)


def _first(key: str, for_s: float) -> bool:
    """Whether nobody was the first within the last `for_s` seconds. Redis alone would keep what a clock that was ahead has put
    there until that time comes."""
    now = time.time()
    if cache.add(key, now, timeout=for_s):
        return True
    since = cache.get(key)
    if since is not None and abs(now - since) <= for_s:
        return False
    cache.set(key, now, timeout=for_s)
    return True


def push(swarm: str) -> None:
    # Before reading: what is committed from now on is not in this push, and must be able to ask for the next one.
    cache.delete(f"push.pending.{swarm}")
    cache.set(f"push.recent.{swarm}", time.time(), timeout=PUSH_GAP_S)
    seen = watch(swarm)
    send = async_to_sync(_send)
    send(page_of(swarm, CHANGES), {"changed": True})
    for page in page_keys(seen):
        key = page_of(swarm, page)
        rendered = render(page, seen)
        send(key, changes(rendered, cache.get(f"push.sent.{key}") or {}))
        cache.set(f"push.sent.{key}", rendered.digests, timeout=SENT_KEPT_S)


def changes(rendered: Rendered, sent: Mapping[str, str], limit: int = MESSAGE_LIMIT) -> dict[str, Any]:
    """The message about a page: what changed since `sent`, as far as it fits, and what all parts should be now."""
    message = rendered.document(frozenset({"nothing"}))
    size = len(json.dumps(message))
    for part in rendered.parts:
        if sent.get(part.name) != part.digest:
            adds = len(json.dumps({part.name: part.html}))
            if size + adds <= limit:
                message["parts"][part.name] = part.html
                size += adds
    return message


def page_keys(seen: Watch) -> list[str]:
    """In the order in which they are rendered and sent; the overview takes the longest, since it asks the planner."""
    models = seen.published.snapshot.models if seen.published else ()
    return [*(model_key(model.prefix) for model in models), "overview"]


def model_key(prefix: str) -> str:
    return f"m/{prefix}"


def page_of(swarm: str, page: str) -> str:
    """The page's key with its swarm, where that is not the first one: what stands in the address of its socket."""
    watched = named(swarm)
    return f"{watched.base}/{page}".lstrip("/") if watched is not None else page


def socket_of(page: str) -> str:
    """The key of the socket that a page listens to."""
    return page if page == "overview" or page.startswith("m/") else CHANGES


def group_of(page: str) -> str:
    """Channels allows 100 characters of few kinds in a group's name; a prefix may have 128."""
    return "page." + hashlib.sha256(page.encode()).hexdigest()[:32]


def render(page: str, seen: Watch, query: Mapping[str, str] = NO_QUERY) -> Rendered:
    kind, _, rest = page.partition("/")
    if kind == "m":
        return parts.model(seen, rest, query)
    if kind == "p":
        return parts.peer(seen, rest)
    if kind == "incidents":
        return history_pages.incident(seen, rest) if rest else history_pages.incidents(seen, query)
    return parts.overview(seen)


async def _send(page: str, message: Mapping[str, Any]) -> None:
    layer = get_channel_layer()
    assert layer is not None  # settings.py sets one
    await layer.group_send(group_of(page), {"type": "page.changed", "text": json.dumps(message)})
