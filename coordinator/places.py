"""Which swarm a page for people is about, and what one needs to join it or talk with it: `/s/NAME/connect`, `?swarm=NAME`, or
the first one.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.http import Http404, HttpRequest

from monitor.swarms import WatchedSwarm, named


@dataclass(frozen=True, slots=True)
class Place:
    """`site` is what a server of this swarm is told as its coordinator; `gateway_url` is empty where nobody runs one."""

    swarm: WatchedSwarm
    join_addresses: tuple[str, ...]
    site: str
    gateway_url: str

    @property
    def name(self) -> str:
        return self.swarm.name

    @property
    def base(self) -> str:
        return self.swarm.base


def place_of(request: HttpRequest, swarm: str = "") -> Place:
    """404 for a swarm that is not watched here."""
    name = swarm or request.GET.get("swarm", "")
    watched = named(name)
    if watched is None:
        raise Http404(f"no swarm {name!r} is watched here")
    return place(watched)


def place(watched: WatchedSwarm) -> Place:
    """What the list of swarms says; for the first one the short settings stand in where it says nothing."""
    said = next(item for item in settings.SEPAL_SWARMS if item["name"] == watched.name)
    is_first = watched.name == settings.SEPAL_SWARM
    return Place(
        watched,
        tuple(said.get("join_addresses") or (settings.SEPAL_JOIN_ADDRESSES if is_first else ())),
        f"{settings.SEPAL_URL}{watched.base}",
        (said.get("gateway") or (settings.SEPAL_GATEWAY_URL if is_first else "")).rstrip("/"),
    )
