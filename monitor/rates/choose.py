"""Whom to measure now: few at a time, in turn, nobody twice within the hour. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swarm.snapshot import PeerState, Snapshot
from swarm.wire.spans import Span

AT_ONCE = 4
"""Servers measured in one round, one after another; a round follows each crawl."""
AGAIN_AFTER_S = 3600.0
"""A pass costs a server a fraction of a second; its speed rarely changes within the hour."""
IN_VAIN_AFTER_S = 600.0
"""So long after a pass that gave no figure it is tried again: it was busy, or just lost."""


PATIENCE = 3
"""Attempts that found a server busy, half an hour at least, after which it is measured all the same. Who is at work always has
pauses between two steps; who only says so would never be measured."""


@dataclass(frozen=True, slots=True)
class Past:
    """The last attempt: when, whether it gave a rate, the most free cache that was seen, and how many attempts since the last
    rate found it busy."""

    at: float
    measured: bool
    cache_tokens: int | None = None
    found_busy: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    prefix: str
    peer_id: str
    span: Span
    idle_cache_tokens: int | None = None
    even_if_busy: bool = False


def choose(snapshot: Snapshot, past: Mapping[tuple[str, str], Past], now: float) -> tuple[Subject, ...]:
    """Those that answered the last crawl and were never measured come first, then those longest ago; of a peer that serves two
    models only one is measured in a round."""
    waiting: list[tuple[float, str, str, Subject]] = []
    for model in snapshot.models:
        for server in model.servers:
            if server.state is not PeerState.ONLINE or server.visit is None or not server.visit.answered:
                continue
            last = past.get((model.prefix, server.peer_id))
            if last is not None and now - last.at < (AGAIN_AFTER_S if last.measured else IN_VAIN_AFTER_S):
                continue
            idle = last.cache_tokens if last else None
            insisting = last is not None and last.found_busy >= PATIENCE
            subject = Subject(model.prefix, server.peer_id, server.span, idle, insisting)
            waiting.append((last.at if last else 0.0, server.peer_id, model.prefix, subject))
    chosen: dict[str, Subject] = {}
    for _, peer_id, _, subject in sorted(waiting, key=lambda item: item[:3]):
        if len(chosen) == AT_ONCE:
            break
        chosen.setdefault(peer_id, subject)
    return tuple(chosen.values())
