"""What may be reasoned on at this moment: the last snapshot, unless it is too old to be believed, and what is promised."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator import leases
from coordinator.leases import Prospects
from monitor.published import Published, Watch
from monitor.queries import watch


class NotSeen(LookupError):
    """The monitor cannot see the swarm; whatever was advised now would be a guess."""


def published_of(swarm: str) -> Published:
    return _believed(watch(swarm).published)


def believed(seen: Watch) -> Published:
    """Of what has been read already."""
    return _believed(seen.published)


def _believed(published: Published | None) -> Published:
    if published is None:
        raise NotSeen("the monitor has not seen this swarm yet")
    if published.stale:
        raise NotSeen("the monitor cannot see the swarm at the moment; it advises nothing until it does")
    return published


def prospects_of(swarm: str, prefix: str) -> Prospects:
    return leases.prospects_of(swarm, prefix)[prefix]


def prospects_of_all(swarm: str, prefixes: Iterable[str]) -> dict[str, Prospects]:
    """By prefix, in one query."""
    return leases.prospects_of(swarm, *prefixes)
