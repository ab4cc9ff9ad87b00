"""The first request that a server got, as it says itself when it asks for hints. Soft state in Redis: it may be lost."""

from __future__ import annotations

import logging
from datetime import datetime

from django.core.cache import cache
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

KEPT_S = 2 * 86_400
"""Longer than anyone watches a server appear."""


def note_sessions(swarm: str, prefix: str, peer_id: str, sessions: int, now: datetime) -> None:
    if sessions:
        try:
            cache.add(_key(swarm, prefix, peer_id), now.timestamp(), timeout=KEPT_S)
        except RedisError as error:
            log.warning("a first request was not noted: Redis does not answer (%s)", error)


def first_request_at(swarm: str, prefix: str, peer_id: str) -> float | None:
    """In Unix seconds; None where none is known."""
    try:
        found: float | None = cache.get(_key(swarm, prefix, peer_id))
    except RedisError:
        return None
    return found


def _key(swarm: str, prefix: str, peer_id: str) -> str:
    return f"first-request.{swarm}.{prefix}.{peer_id}"
