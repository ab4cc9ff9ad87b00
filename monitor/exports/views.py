"""Doors: the list of days as page and as JSON, and each day's file, which never changes."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.utils.http import http_date
from django.views.decorators.http import require_safe

from monitor.exports.models import Export
from monitor.history.words import iso

FOR_GOOD = "public, immutable, max-age=31536000"
LISTED = "public, max-age=300"


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    response = render(request, "monitor/exports/index.html", {"days": _listed()})
    response["Cache-Control"] = LISTED
    return response


@require_safe
def index_json(request: HttpRequest) -> HttpResponse:
    items = [
        {
            "day": export.day.isoformat(),
            "url": f"/exports/{export.day.isoformat()}.ndjson.gz",
            "made_at": iso(export.made_at),
            "lines": export.lines,
            "size_bytes": export.size,
            "sha256": export.sha256,
        }
        for export in _listed()
    ]
    response = JsonResponse({"items": items})
    response["Cache-Control"] = LISTED
    return response


@require_safe
def day(request: HttpRequest, day: str) -> HttpResponseBase:
    try:
        export = Export.objects.filter(day=date.fromisoformat(day)).first()
    except ValueError as error:
        raise Http404("there is no such day") from error
    if export is None:
        raise Http404("this day has not been exported, or not kept")
    etag = f'"{export.sha256}"'
    response = HttpResponse(bytes(export.body), content_type="application/gzip")
    response["ETag"], response["Cache-Control"] = etag, FOR_GOOD
    response["Last-Modified"] = http_date(export.made_at.timestamp())
    response["Content-Disposition"] = f'attachment; filename="sepal-{day}.ndjson.gz"'
    return get_conditional_response(request, etag=etag, response=response) or response


def _listed() -> Any:
    return Export.objects.defer("body").order_by("-day")
