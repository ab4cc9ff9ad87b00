"""What holds for every answer under /api/, in one place: errors are problem documents, reads carry an ETag and know a 304,
say how long they may be kept, and may be read from any web page; whoever asks too often is told to wait.

Outermost, so that it also sees what Django itself answers. Doors only note what their answer rests on (`caching.note`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from django.utils.http import http_date

from monitor.api.caching import Noted, Rule, etag_of, matches, noted
from monitor.api.problems import MEDIA_TYPE, TOO_MANY, Problem, of_status
from monitor.limits import READS_OF_AN_ADDRESS, TooMany, address_of, count

HANDOVER = "sepal.answer"
"""Under this key `shortcut` puts an empty list into the ASGI scope, and finds in it what the answer rests on. Then it is
also the one who says 304: it wants the whole answer, to keep it."""

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "Accept, If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "86400",
}
_UNNAMED = Rule("no-cache", 0.0)
_STARTED_AT = time.time()
_KEPT_OF_AN_ERROR = ("Allow", "Retry-After", "WWW-Authenticate")

Sync = Callable[[HttpRequest], HttpResponseBase]
Async = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def api_middleware(get_response: Sync | Async) -> Sync | Async:
    if iscoroutinefunction(get_response):
        asked = cast(Async, get_response)

        async def answer_later(request: HttpRequest) -> HttpResponseBase:
            if not request.path.startswith("/api/"):
                return await asked(request)
            method = request.method or ""
            early = await sync_to_async(_before)(request)
            return _after(request, method, early if early is not None else await asked(request))

        return answer_later

    asked_now = cast(Sync, get_response)

    def answer(request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith("/api/"):
            return asked_now(request)
        method = request.method or ""
        early = _before(request)
        return _after(request, method, early if early is not None else asked_now(request))

    return answer


def _before(request: HttpRequest) -> HttpResponse | None:
    """An answer where the doors need not be asked."""
    if request.method == "HEAD":
        # Whoever answers GET answers HEAD; the body is taken off again.
        request.method = "GET"
    if request.method == "GET":
        try:
            count(READS_OF_AN_ADDRESS, address_of(request))
        except TooMany as error:
            return too_many(error)
    return None


def too_many(error: TooMany) -> HttpResponse:
    return Problem(TOO_MANY, str(error), {"Retry-After": str(error.retry_after_s)}).response()


def _after(request: HttpRequest, method: str, response: HttpResponseBase) -> HttpResponseBase:
    if method == "OPTIONS" and response.status_code == 405:
        # No door takes OPTIONS, and so each of them says what it does take.
        response = HttpResponse(status=204, headers={**_PREFLIGHT, "Allow": _allowed(response)})
    response = _as_problem(request, response)
    _open_to_pages(method, response)
    if method not in ("GET", "HEAD") or not isinstance(response, HttpResponse):
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "no-store"
        return response
    if response.status_code == 200:
        response = conditional(request, response)
    if method == "HEAD":
        response["Content-Length"] = str(len(response.content))
        response.content = b""
    return response


def _as_problem(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """An error that is none of ours yet: no such address, no such method, or one of Django's own."""
    if response.status_code < 400 or response.get("Content-Type", "").startswith(MEDIA_TYPE):
        return response
    kind = of_status(response.status_code)
    headers = {name: response[name] for name in _KEPT_OF_AN_ERROR if response.has_header(name)}
    if "Allow" in headers:
        headers["Allow"] = _allowed(response)
    problem = Problem(kind, f"{request.path}: {kind.remedy}", headers).response()
    problem.status_code = response.status_code
    return problem


def _allowed(response: HttpResponseBase) -> str:
    named = {method.strip() for method in response.get("Allow", "").split(",")} - {""}
    return ", ".join(sorted(named | {"OPTIONS"} | ({"HEAD"} if "GET" in named else set())))


def _open_to_pages(method: str, response: HttpResponseBase) -> None:
    """Reads are for scripts of any page, without cookies; writes are for none."""
    if method in ("GET", "HEAD", "OPTIONS"):
        response["Access-Control-Allow-Origin"] = "*"
        response["Access-Control-Expose-Headers"] = "ETag, Link, Retry-After"
        patch_vary_headers(response, ["Accept", "Accept-Encoding"])
    else:
        del response["Access-Control-Allow-Origin"]


def conditional(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """With its tag, or as a 304; handed over where `shortcut` asks. Doors outside /api/ call this themselves."""
    if response.has_header("ETag"):
        return response
    about = noted(request) or Noted(_UNNAMED)
    if not response.has_header("Cache-Control"):
        response["Cache-Control"] = about.rule.header
    if "no-store" in response["Cache-Control"]:
        return response
    response["ETag"] = etag_of(about, response.content, response.get("Content-Type", ""))
    response["Last-Modified"] = http_date(about.modified if about.modified is not None else _STARTED_AT)
    handover: list[Any] | None = getattr(request, "scope", {}).get(HANDOVER)
    if handover is not None and about.rule.kept_s > 0:
        handover.append(about)
        return response
    if matches(request.headers.get("If-None-Match", ""), response["ETag"]):
        return _not_modified(response)
    return response


def _not_modified(response: HttpResponse) -> HttpResponse:
    kept = (
        "ETag",
        "Last-Modified",
        "Cache-Control",
        "Vary",
        "Access-Control-Allow-Origin",
        "Access-Control-Expose-Headers",
        "Link",
    )
    short = HttpResponse(status=304, headers={name: response[name] for name in kept if response.has_header(name)})
    del short["Content-Type"]
    return short
