"""Doors of the incident pages: from the database, through a template. Neither Redis nor scripts are needed."""

from __future__ import annotations

import time

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from monitor.history.calendar import calendar
from monitor.history.incidents import confirmed, overlapping
from monitor.history.uptime import DAYS, swarm_watched
from monitor.history.words import story
from monitor.rulings import staff
from monitor.swarms import named

A_PAGE = 50


@require_safe
def incidents(request: HttpRequest) -> HttpResponse:
    now, swarm = time.time(), _swarm(request)
    page = Paginator(confirmed(swarm).filter(ended_before__isnull=False), A_PAGE).get_page(request.GET.get("page"))
    opened, closed = list(confirmed(swarm).filter(ended_before__isnull=True)), list(page)
    oldest = min((row.started_after or row.started_before for row in (*opened, *closed)), default=None)
    windows = staff().maintenance(swarm, oldest.timestamp(), now) if oldest else ()
    watched, possible = swarm_watched(swarm, now)
    context = {
        "swarm": swarm,
        "open": [story(row, now, windows) for row in opened],
        "past": [story(row, now, windows) for row in closed],
        "page": page,
        "calendar": calendar(overlapping(swarm, now - DAYS * 86_400), now, DAYS),
        "days": DAYS,
        "watched": watched,
        "possible": possible,
    }
    return _fresh(render(request, "monitor/incidents.html", context))


@require_safe
def incident(request: HttpRequest, incident_id: int) -> HttpResponse:
    swarm = _swarm(request)
    row = confirmed(swarm).filter(pk=incident_id).first() if incident_id < 2**63 else None
    if row is None:
        raise Http404(f"There is no incident {incident_id}.")
    now = time.time()
    windows = staff().maintenance(swarm, (row.started_after or row.started_before).timestamp(), now)
    page = {"swarm": swarm, "story": story(row, now, windows), "notes": staff().notes(row.pk)}
    return _fresh(render(request, "monitor/incident.html", page))


def _swarm(request: HttpRequest) -> str:
    """`?swarm=NAME`; the first one where none is named."""
    watched = named(request.GET.get("swarm", ""))
    if watched is None:
        raise Http404("This site watches no such swarm.")
    return watched.name


def _fresh(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-cache"
    return response
