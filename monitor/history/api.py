"""Reads of the history under /api/v1. Doors: ask, call, serialise."""

from __future__ import annotations

import time
from typing import Annotated
from urllib.parse import urlencode

from django.http import HttpRequest, JsonResponse
from ninja import Query, Router
from ninja.errors import HttpError

from monitor.hiding.models import hidden_list
from monitor.history import uptime
from monitor.history.documents import history_document, incident_document, models_of_peer, peer_document
from monitor.history.incidents import confirmed
from monitor.history.rules import Kind
from monitor.models import WatchedModel
from monitor.swarms import named

router = Router(tags=["history"])

LIVE = "public, max-age=5, stale-while-revalidate=30, stale-if-error=300"
SLOW = "public, max-age=60, stale-while-revalidate=300, stale-if-error=3600"
"""Days change once a minute at most."""
PAGE = 100
MAX_PAGE = 500
MAX_DAYS = 400
MAX_ID = 2**63 - 1

PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Id = Annotated[int, Query(ge=1, le=MAX_ID)]


@router.get("/incidents", summary="Incidents, newest first: holes, blocks with one server, times without sight")
def incidents(
    request: HttpRequest,
    swarm: str = "",
    prefix: str | None = None,
    kind: Kind | None = None,
    limit: PageSize = PAGE,
    cursor: Id | None = None,
) -> JsonResponse:
    """`cursor` is the id below which to go on; `next` says it."""
    rows = confirmed(_swarm(swarm))
    if prefix is not None:
        rows = rows.filter(model__prefix=prefix)
    if kind is not None:
        rows = rows.filter(kind=kind.value)
    if cursor is not None:
        rows = rows.filter(pk__lt=cursor)
    found = list(rows[: limit + 1])
    items, more = found[:limit], len(found) > limit
    asked = {
        "swarm": swarm or None,
        "prefix": prefix,
        "kind": kind.value if kind else None,
        "limit": limit,
        "cursor": items[-1].pk if more else None,
    }
    following = f"{request.path}?{urlencode({k: v for k, v in asked.items() if v is not None})}" if more else None
    response = _cacheable({"items": [incident_document(row) for row in items], "next": following}, LIVE)
    if following:
        response["Link"] = f'<{following}>; rel="next"'
    return response


@router.get("/incidents/{incident_id}", summary="One incident")
def incident(request: HttpRequest, incident_id: int, swarm: str = "") -> JsonResponse:
    row = confirmed(_swarm(swarm)).filter(pk=incident_id).first() if 1 <= incident_id <= MAX_ID else None
    if row is None:
        raise HttpError(404, f"there is no incident {incident_id}; /api/v1/incidents lists those there are")
    return _cacheable(incident_document(row), LIVE)


@router.get("/models/{prefix}/history", summary="A model's days: minutes watched, broken, thin, unknown")
def history(
    request: HttpRequest, prefix: str, swarm: str = "", days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = uptime.DAYS
) -> JsonResponse:
    model = WatchedModel.objects.of(_swarm(swarm)).filter(prefix=prefix).first()
    if model is None:
        raise HttpError(404, f"the monitor has never seen a model with the prefix {prefix!r}")
    return _cacheable(history_document(model, time.time(), days), SLOW)


@router.get("/peers/{peer_id}/uptime", summary="A server's uptime, for each model that it served in these days")
def uptime_of_peer(
    request: HttpRequest,
    peer_id: str,
    swarm: str = "",
    days: Annotated[int, Query(ge=1, le=uptime.DAYS)] = uptime.DAYS,
) -> JsonResponse:
    now = time.time()
    if peer_id in hidden_list().peers:
        raise HttpError(404, f"the monitor has not seen {peer_id!r} in {days} days")
    found = [(row.prefix, uptime.peer_uptime(row.pk, peer_id, now, days)) for row in models_of_peer(_swarm(swarm), peer_id)]
    items = [peer_document(prefix, counted) for prefix, counted in found if counted is not None]
    if not items:
        raise HttpError(404, f"the monitor has not seen {peer_id!r} in {days} days")
    return _cacheable({"peer_id": peer_id, "days": days, "items": items}, SLOW)


def _swarm(name: str) -> str:
    """The swarm's name, checked; that of the first one where none is asked for."""
    watched = named(name)
    if watched is None:
        raise HttpError(404, f"this site watches no swarm {name!r}; /api/v1/swarms lists those it does")
    return watched.name


def _cacheable(document: dict[str, object], rule: str) -> JsonResponse:
    response = JsonResponse(document)
    response["Cache-Control"] = rule
    return response
