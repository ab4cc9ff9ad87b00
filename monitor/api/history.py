"""What the monitor remembers: incidents, days of models and blocks, uptime of servers."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router
from pydantic import Field

from monitor.api import paging, sight
from monitor.api.caching import SLOW
from monitor.api.problems import UNKNOWN_INCIDENT, UNKNOWN_MODEL, UNKNOWN_SERVER, Problem
from monitor.api.typed import Document, Fresh, Moment, OfModel, Pair, PeerId, Prefix, SwarmName, freshness
from monitor.hiding.models import hidden_list
from monitor.history import uptime
from monitor.history.documents import history_document, incident_document, models_of_peer, peer_document
from monitor.history.incidents import confirmed
from monitor.history.peers import hours_of
from monitor.history.rules import Kind
from monitor.models import WatchedModel

router = Router(tags=["history"])

MAX_DAYS = 400

Days = Annotated[int, Query(ge=1, le=MAX_DAYS, description="How many days, today included")]
PeerDays = Annotated[int, Query(ge=1, le=uptime.DAYS, description="How many days, today included")]
Id = Annotated[int, Path(ge=1, le=paging.MAX_ID)]


class Bounds(Document):
    """The monitor looks every so often: what happened, happened between two looks."""

    after: Moment | None = Field(description="Not before; null where nobody had looked")
    before: Moment = Field(description="Not after")


class Departure(Document):
    peer_id: PeerId
    how: str = Field(examples=["stopped answering"])
    normally: bool = Field(description="Whether it said goodbye", examples=[False])


class IncidentDocument(Document):
    """Something that went wrong. One of kind `blind` is the monitor's own, and never downtime of a model."""

    id: int = Field(examples=[31], ge=1)
    swarm: str = Field(examples=["main"])
    kind: Literal["hole", "thin", "blind"] = Field(
        description="`hole`: blocks without a server, in two checks; `thin`: with one, for half an hour; `blind`: the monitor"
        " did not see the swarm",
        examples=["hole"],
    )
    severity: Literal["outage", "warning", "not watched"] = Field(examples=["outage"])
    counts_as_downtime: bool = Field(examples=[True])
    prefix: Prefix | None = Field(
        description="The model; null where it is the monitor's own incident", examples=["Llama-2-70b-hf"]
    )
    title: str = Field(examples=["Llama-2-70b-hf: blocks 12–17 have no server"])
    open: bool = Field(description="Whether it goes on", examples=[True])
    started: Bounds
    ended: Bounds | None = Field(description="Null while it goes on")
    blocks: list[Pair] = Field(description="All that were ever part of it")
    left: list[Departure] = Field(description="Who was seen to leave these blocks, 50 at most")
    restored_by: list[PeerId] = Field(description="Who came instead")
    reason: str | None = Field(description="More about why, where that is known", examples=[None])
    url: str = Field(description="Its page on this site", examples=["/incidents/31"])


class IncidentList(Fresh):
    """Newest first."""

    items: list[IncidentDocument]
    next: str | None = Field(description="Address of the next page; null on the last", examples=[None])


class IncidentOfSwarm(IncidentDocument, Fresh):
    """One incident, and how far its being open may be believed."""


class Minutes(Document):
    """Only minutes in which the monitor saw the swarm count, up or down."""

    watched_minutes: int = Field(examples=[1440], ge=0)
    broken_minutes: int = Field(description="Some block had no server", examples=[23], ge=0)
    thin_minutes: int = Field(description="Some block had one server, and none had none", examples=[90], ge=0)
    unknown_minutes: int = Field(description="Some block could not be read", examples=[0], ge=0)
    share_up: float | None = Field(
        description="Of the minutes of which anything is known, those in which it ran, 0 to 1; null where there are none",
        examples=[0.984],
    )


class Day(Minutes):
    day: str = Field(description="In UTC", json_schema_extra={"format": "date"}, examples=["2026-09-21"])


class BlockMinutes(Document):
    block: int = Field(examples=[12], ge=0)
    minutes_without_server: int = Field(examples=[23], ge=0)
    minutes_with_one: int = Field(examples=[90], ge=0)
    share_up: float | None = Field(description="0 to 1; null where nothing is known", examples=[0.984])


class HistoryDocument(Fresh):
    """A model's days, oldest first, and each of its blocks over all of them."""

    swarm: str = Field(examples=["main"])
    prefix: Prefix
    days: list[Day]
    total: Minutes
    blocks: list[BlockMinutes]


class PeerHour(Document):
    """What a server gave while it was online in this hour; null where it was not, or did not say."""

    begins_at: Moment
    throughput_tokens_per_second: float | None = Field(description="As it reported, in the mean", examples=[310.5])
    cache_tokens_left_per_block: int | None = Field(
        description="How long a session its cache had room for, in tokens: the mean", examples=[14745], ge=0
    )
    least_cache_tokens_left_per_block: int | None = Field(description="Likewise, the least of the hour", examples=[8192], ge=0)


class PeerUptime(Document):
    prefix: Prefix
    up_minutes: int = Field(description="Online and answering", examples=[1400], ge=0)
    known_minutes: int = Field(description="Watched since it was first seen within these days", examples=[1440], ge=0)
    share_up: float | None = Field(description="0 to 1; null where nothing is known", examples=[0.972])
    hours: list[PeerHour] = Field(description="Of the last seven days, oldest first; hours without a figure are left out")


class PeerHistory(Fresh):
    """A server's uptime, for each model that it served."""

    peer_id: PeerId
    days: int = Field(examples=[90], ge=1)
    items: list[PeerUptime]


@router.get(
    "/incidents", response=IncidentList, summary="Incidents, newest first: holes, blocks with one server, times without sight"
)
def incidents(
    request: HttpRequest,
    response: HttpResponse,
    swarm: SwarmName = "",
    prefix: OfModel = "",
    kind: Annotated[Kind | None, Query(description="Only of this kind")] = None,
    limit: paging.PageSize = paging.PAGE,
    cursor: paging.Cursor = "",
) -> dict[str, Any]:
    seen = sight.look(request, swarm)
    rows = confirmed(seen.swarm).filter(pk__lt=paging.read_id(cursor))
    if prefix:
        rows = rows.filter(model__prefix=prefix)
    if kind is not None:
        rows = rows.filter(kind=kind.value)
    page, more = paging.page_of(rows[: limit + 1], limit, lambda row: row.pk)
    items = [incident_document(row) for row in page]
    return {"items": items, "next": paging.following(request, response, more), **freshness(seen)}


@router.get("/incidents/{incident_id}", response=IncidentOfSwarm, summary="One incident")
def incident(request: HttpRequest, incident_id: Id, swarm: SwarmName = "") -> dict[str, Any]:
    seen = sight.look(request, swarm)
    row = confirmed(seen.swarm).filter(pk=incident_id).first()
    if row is None:
        raise Problem(UNKNOWN_INCIDENT, f"there is no incident {incident_id}; /api/v1/incidents lists those there are")
    return {**incident_document(row), **freshness(seen)}


@router.get(
    "/models/{prefix}/history", response=HistoryDocument, summary="A model's days: minutes watched, broken, thin, unknown"
)
def history(request: HttpRequest, prefix: str, swarm: SwarmName = "", days: Days = uptime.DAYS) -> dict[str, Any]:
    seen = sight.look(request, swarm, SLOW)
    model = WatchedModel.objects.of(seen.swarm).filter(prefix=prefix).first()
    if model is None:
        raise Problem(
            UNKNOWN_MODEL,
            f"the monitor has never seen a model with the prefix {prefix!r}; /api/v1/models lists the present ones",
        )
    return {**history_document(model, time.time(), days), **freshness(seen)}


@router.get(
    "/peers/{peer_id}/uptime", response=PeerHistory, summary="A server's uptime, for each model that it served in these days"
)
def uptime_of_peer(request: HttpRequest, peer_id: str, swarm: SwarmName = "", days: PeerDays = uptime.DAYS) -> dict[str, Any]:
    seen, now = sight.look(request, swarm, SLOW), time.time()
    listed = [] if peer_id in hidden_list().peers else models_of_peer(seen.swarm, peer_id)
    found = [(row, uptime.peer_uptime(row.pk, peer_id, now, days)) for row in listed]
    items = [
        peer_document(row.prefix, counted, hours_of(row.pk, peer_id, now)) for row, counted in found if counted is not None
    ]
    if not items:
        raise Problem(UNKNOWN_SERVER, f"the monitor has not seen {peer_id!r} in {days} days")
    return {"peer_id": peer_id, "days": days, "items": items, **freshness(seen)}
