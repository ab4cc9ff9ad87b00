"""What all doors here have in common: who is meant, what may be kept for how long, and a plain answer where there is none."""

from __future__ import annotations

import hashlib
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import http_date

from monitor.swarms import WatchedSwarm, named


class NoSuchSwarm(LookupError):
    pass


def swarm_of(request: HttpRequest) -> WatchedSwarm:
    """`?swarm=NAME`; the first one where none is named."""
    watched = named(request.GET.get("swarm", ""))
    if watched is None:
        raise NoSuchSwarm("no such swarm is watched here; /api/v1/swarms lists those that are")
    return watched


def cacheable(
    request: HttpRequest, body: bytes, content_type: str, cache: str, changed_at: float | None = None
) -> HttpResponseBase:
    """With ETag and, where it is known, Last-Modified; 304 to who has it already."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    response = HttpResponse(body, content_type=content_type)
    response["ETag"], response["Cache-Control"] = etag, cache
    if changed_at is not None:
        response["Last-Modified"] = http_date(changed_at)
    answer = get_conditional_response(
        request, etag=etag, last_modified=int(changed_at) if changed_at else None, response=response
    )
    return answer if answer is not None else response


def problem(status: int, detail: str, retry_after_s: int | None = None) -> HttpResponse:
    """RFC 9457, as under all of /api/."""
    body = {"type": f"/docs/api#problem-{status}", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    response = JsonResponse(body, status=status, content_type="application/problem+json")
    if retry_after_s is not None:
        response["Retry-After"] = str(retry_after_s)
    return response


def told(status: int, words: str) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
