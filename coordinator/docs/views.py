"""Doors of the pages about the API and about measuring."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from coordinator import limits
from coordinator.api import api
from coordinator.docs import jobs, measures, reference
from monitor.api.problems import CATALOGUE


@require_safe
def api_page(request: HttpRequest) -> HttpResponse:
    site = settings.SEPAL_URL
    page = {
        "site": site,
        "lines": jobs.first_lines(site),
        "cached": jobs.cached_lines(site),
        "jobs": jobs.offered(jobs.is_here),
        "limits": limits,
        "interval_s": settings.SEPAL_CRAWL_INTERVAL_S,
        "body_limit_kb": settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 1024,
        "groups": reference.groups(api.get_openapi_schema()),
        "errors": CATALOGUE,
    }
    return _page(request, "api", page)


@require_safe
def measuring(request: HttpRequest) -> HttpResponse:
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    page = {
        "words": measures.words(),
        "states": measures.states(),
        "incidents": [(kind.value, said) for kind, said in measures.INCIDENTS.items()],
        "figures": measures.figures(interval_s),
        "unknowns": measures.UNKNOWNS,
    }
    return _page(request, "measuring", page)


@require_safe
def errors_page(request: HttpRequest) -> HttpResponse:
    """Everything that can go wrong under /api/; the catalogue is the monitor's."""
    return render(request, "coordinator/docs/errors.html", {"kinds": CATALOGUE})


@require_safe
def error_page(request: HttpRequest, slug: str) -> HttpResponse:
    """What the `type` of a problem document leads to: what went wrong, and what to do."""
    kind = next((kind for kind in CATALOGUE if kind.slug == slug), None)
    if kind is None:
        raise Http404(f"There is no kind of error {slug}.")
    return render(request, "coordinator/docs/errors.html", {"kinds": [kind], "one": kind})


def _page(request: HttpRequest, name: str, page: dict[str, Any]) -> HttpResponse:
    response = render(request, f"coordinator/docs/{name}.html", {"page": page})
    response["Cache-Control"] = "public, max-age=60"
    return response
