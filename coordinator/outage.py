"""While Postgres does not answer: the last good copy of a page, marked as such, or a page that says so in one sentence.

Each web process keeps the pages that it served last, in its own memory: what has failed is where everything else is kept.
Programs get a problem document (`coordinator.problems`), and `/readyz` says what is wrong.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from datetime import UTC, datetime
from threading import Lock

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

log = logging.getLogger(__name__)

KEPT = 64
"""Pages of one process: the overview, and more models than most sites watch."""
LARGEST = 2**20
RETRY_AFTER_S = 10
OPENING = '<main id="main">'
"""Where every page of ours begins to speak (templates/base.html)."""
NOT_KEPT = ("/api/", "/admin", "/static/", "/metrics", "/readyz", "/livez", "/healthz")

_lock = Lock()
_pages: OrderedDict[str, tuple[float, str]] = OrderedDict()


class LastPages(MiddlewareMixin):
    """Middleware. Keeps what went well, and steps in where the database is gone."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if _may_keep(request) and isinstance(response, HttpResponse) and _is_page(response):
            with _lock:
                _pages[request.get_full_path()] = (time.time(), response.content.decode())
                _pages.move_to_end(request.get_full_path())
                while len(_pages) > KEPT:
                    _pages.popitem(last=False)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, OperationalError | InterfaceError) or request.path.startswith(NOT_KEPT):
            return None
        log.warning("%s: the database does not answer (%s)", request.path, str(error).splitlines()[0] if str(error) else error)
        with _lock:
            kept = _pages.get(request.get_full_path()) if _may_keep(request) else None
        return _apology() if kept is None else _as_of(*kept)


def forget() -> None:
    with _lock:
        _pages.clear()


def _may_keep(request: HttpRequest) -> bool:
    """Pages that are the same for everybody."""
    return (
        request.method == "GET"
        and not request.path.startswith(NOT_KEPT)
        and "fragment" not in request.META.get("QUERY_STRING", "")
        and "sessionid" not in request.COOKIES
    )


def _is_page(response: HttpResponse) -> bool:
    plain = response.status_code == 200 and not response.cookies and not response.has_header("Content-Encoding")
    return plain and response.get("Content-Type", "").startswith("text/html") and len(response.content) <= LARGEST


def _as_of(at: float, page: str) -> HttpResponse:
    when = datetime.fromtimestamp(at, UTC).strftime("%-d %b %H:%M:%S UTC")
    words = f"This site's database does not answer: what you see is from {when}, and may have changed since."
    note = f'{OPENING}\n<p class="notice warning" id="outage"><span aria-hidden="true">?</span> {words}</p>'
    return _answer(page.replace(OPENING, note, 1), 200)


def _apology() -> HttpResponse:
    return _answer(render_to_string("503.html"), 503)


def _answer(html: str, status: int) -> HttpResponse:
    response = HttpResponse(html, status=status)
    response["Cache-Control"] = "no-store"
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response
