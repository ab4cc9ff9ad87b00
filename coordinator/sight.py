"""What may be reasoned on at this moment: the last snapshot, unless it is too old to be believed, and what is promised."""

from __future__ import annotations

from datetime import UTC, datetime

from coordinator import leases
from coordinator.leases import Prospects
from monitor.published import Published, Watch
from monitor.queries import watch
from swarm.snapshot import Model


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


def prospects_of(published: Published, model: Model) -> Prospects:
    """At the moment at which this was read."""
    return leases.prospects_of(published.snapshot.swarm, [model], _read_at(published))[model.prefix]


def prospects_of_all(published: Published) -> dict[str, Prospects]:
    """By prefix, in one query for all models."""
    return leases.prospects_of(published.snapshot.swarm, published.snapshot.models, _read_at(published))


def _read_at(published: Published) -> datetime:
    return datetime.fromtimestamp(published.read_at, UTC)
