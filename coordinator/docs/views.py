"""Doors of the pages about the API and about measuring."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from coordinator import limits
from coordinator.api import api
from coordinator.docs import errors, jobs, measures, reference


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
        "errors": errors.CATALOGUE,
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


def _page(request: HttpRequest, name: str, page: dict[str, Any]) -> HttpResponse:
    response = render(request, f"coordinator/docs/{name}.html", {"page": page})
    response["Cache-Control"] = "public, max-age=60"
    return response
