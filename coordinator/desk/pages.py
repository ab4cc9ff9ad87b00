"""Doors of the desk's own pages: board, oddities, explained hints, replay. The admin's site lets staff in and nobody else."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from coordinator.desk import board as boarding
from coordinator.desk import gathered, moves
from coordinator.desk import oddities as odd
from coordinator.desk import replay as replaying
from coordinator.models import Lease
from monitor import live
from monitor.models import Crawl
from monitor.published import ago
from monitor.queries import watch_everyone
from monitor.swarms import configured

REPLAYS_LISTED = 100


@require_safe
def board(request: HttpRequest) -> HttpResponse:
    now = time.time()
    found = gathered.boards(now)
    rows = [row for one in found for row in one.rows]
    chosen = {name: request.GET.get(name, "") for name in ("swarm", "model", "kind")}
    shown = [
        {"row": row, "age": odd.age(row.since, now)}
        for row in rows
        if chosen["swarm"] in ("", row.swarm) and chosen["model"] in ("", row.prefix) and chosen["kind"] in ("", row.kind)
    ]
    page = {
        "boards": found,
        "shown": shown,
        "total": len(rows),
        "chosen": chosen,
        "swarms": [one.swarm for one in found],
        "models": sorted({row.prefix for row in rows}),
        "kinds": boarding.KINDS,
        "target": boarding.TARGET,
    }
    return _page(request, "board", "What needs action", page)


@require_safe
def oddities(request: HttpRequest) -> HttpResponse:
    now, listed = time.time(), []
    for swarm in configured():
        seen = watch_everyone(swarm.name, now)
        if seen.published is None:
            continue
        listed.append(
            {
                "swarm": swarm,
                "stale": not seen.sees,
                "ghosts": [{"ghost": one, "age": odd.age(one.since, now)} for one in odd.ghosts(seen.published)],
                "doubles": odd.doubles(seen.published, moves.changes(swarm.name, now)),
            }
        )
    return _page(request, "oddities", "Ghosts and doubles", {"swarms": listed})


@require_safe
def explained(request: HttpRequest, hint_id: UUID) -> HttpResponse:
    lease = get_object_or_404(Lease, pk=hint_id)
    took = ago(lease.repaired_s) if lease.repaired_s is not None else ""
    page = {"lease": lease, "took": took, "percent": int(100 * lease.progress)}
    return _page(request, "explained", f"Hint: {lease.span.in_words()}", page)


@require_safe
def replays(request: HttpRequest) -> HttpResponse:
    published = Crawl.objects.filter(observed_at__isnull=False).order_by("-observed_at")[:REPLAYS_LISTED]
    return _page(request, "replays", "Replay a check", {"crawls": published})


@require_safe
def replay(request: HttpRequest, crawl_id: int, prefix: str = "") -> HttpResponse:
    """The public page itself, of then: nothing of the admin is around it but one line."""
    crawl = get_object_or_404(Crawl, pk=crawl_id) if crawl_id < 2**63 else None
    found = replaying.replayed(crawl, float(settings.SEPAL_CRAWL_INTERVAL_S)) if crawl is not None else None
    if found is None:
        raise Http404(f"of check {crawl_id} there is nothing to replay: it published nothing, or is no longer kept")
    assert found.seen.published is not None
    rendered = live.render(live.model_key(prefix) if prefix else "overview", found.seen)
    models = [model.prefix for model in found.seen.published.snapshot.models]
    context = {"found": found, "rendered": rendered, "prefix": prefix, "models": models}
    return render(request, "coordinator/desk/replay.html", context, status=200 if rendered.found else 404)


def _page(request: HttpRequest, name: str, title: str, page: dict[str, Any]) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, "page": page}
    return TemplateResponse(request, f"coordinator/desk/{name}.html", context)
