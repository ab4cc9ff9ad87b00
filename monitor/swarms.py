"""The swarms that this site watches. Addresses that name none mean the first."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings


@dataclass(frozen=True, slots=True)
class WatchedSwarm:
    """`look_for` are model prefixes that the swarm may keep out of its index."""

    name: str
    label: str
    initial_peers: tuple[str, ...]
    relay: bool = False
    look_for: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """What its pages' addresses begin with."""
        return "" if self.name == settings.SEPAL_SWARM else f"/s/{self.name}"

    @property
    def query(self) -> str:
        """What is added to an address of the API."""
        return "" if self.name == settings.SEPAL_SWARM else f"?swarm={self.name}"


def configured() -> tuple[WatchedSwarm, ...]:
    return tuple(
        WatchedSwarm(item["name"], item["label"], tuple(item["initial_peers"]), item["relay"], tuple(item["models"]))
        for item in settings.SEPAL_SWARMS
    )


def named(name: str) -> WatchedSwarm | None:
    """The swarm of this name; the first one where the name is empty."""
    return next((swarm for swarm in configured() if swarm.name == (name or settings.SEPAL_SWARM)), None)
