"""The swarms that this site watches, and the doors through which each is entered."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from monitor.api import sight
from monitor.api.caching import LIVE, note_rule
from monitor.api.typed import Document, Fresh, Moment, PeerId, SwarmName, freshness
from monitor.published import Watch, rfc3339
from monitor.swarms import WatchedSwarm, configured

router = Router(tags=["swarms"])


class SwarmDocument(Fresh):
    """One swarm. The first of the list is meant where an address names none."""

    name: str = Field(description="For `?swarm=`", examples=["main"])
    label: str = Field(description="What people call it", examples=["Our swarm"])
    page: str = Field(description="Where its pages begin on this site", examples=["/"])
    models: int = Field(description="Models that it announces", examples=[2], ge=0)
    servers: int = Field(description="Servers that announce themselves, each counted once", examples=[12], ge=0)


class SwarmList(Document):
    items: list[SwarmDocument]


class EntranceAddress(Document):
    """One address of a bootstrap peer, without its host. IPv4 and IPv6 fail apart."""

    family: str = Field(description="Kind of address", examples=["ip4"])
    step: str = Field(description="`ok`, or where a query through it ended: dns, tcp, dht", examples=["ok"])
    detail: str | None = Field(description="The error, without addresses", examples=[None])


class BootstrapPeer(Document):
    """A peer through which others enter the swarm."""

    peer_id: PeerId
    up: bool = Field(description="Whether it answered a DHT query in the last check", examples=[True])
    addresses: list[EntranceAddress] = Field(description="Empty where the check ended before they were tried")


class BootstrapList(Fresh):
    """Bootstrap peers as the newest check found them, whether its result was believed or not."""

    swarm: str = Field(examples=["main"])
    checked_at: Moment | None = Field(description="When that check ended; null before the first")
    split: str | None = Field(description="Which of them do not know the same swarm; null where all do", examples=[None])
    items: list[BootstrapPeer]


@router.get(
    "/swarms", response=SwarmList, summary="The swarms that are watched here; the first is meant where an address names none"
)
def swarms(request: HttpRequest) -> dict[str, Any]:
    note_rule(request, LIVE)
    return {"items": [_swarm_document(swarm, sight.current(swarm.name)) for swarm in configured()]}


@router.get("/bootstraps", response=BootstrapList, summary="Bootstrap peers: which answer, and over which kind of address")
def bootstraps(request: HttpRequest, swarm: SwarmName = "") -> dict[str, Any]:
    seen = sight.look(request, swarm)
    last = seen.last_crawl
    addresses: dict[str, list[dict[str, Any]]] = {}
    for state in last.addresses if last else ():
        told = {"family": state.family, "step": state.step, "detail": state.detail or None}
        addresses.setdefault(state.peer_id, []).append(told)
    peers = sorted(last.bootstraps.items()) if last else []
    return {
        "swarm": seen.swarm,
        "checked_at": rfc3339(last.finished_at) if last else None,
        "split": (last.split or None) if last else None,
        "items": [{"peer_id": peer, "up": up, "addresses": addresses.get(peer, [])} for peer, up in peers],
        **freshness(seen),
    }


def _swarm_document(swarm: WatchedSwarm, seen: Watch) -> dict[str, Any]:
    models = seen.published.snapshot.models if seen.published else ()
    return {
        "name": swarm.name,
        "label": swarm.label,
        "page": f"{swarm.base}/",
        "models": len(models),
        "servers": len({server.peer_id for model in models for server in model.servers}),
        **freshness(seen),
    }
