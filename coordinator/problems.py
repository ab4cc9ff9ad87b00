"""Whatever goes wrong behind a door becomes a problem document (`monitor.api.problems`). Never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from psycopg.errors import DeadlockDetected, LockNotAvailable

from coordinator.sight import NotSeen
from coordinator.signatures import CannotCheck, Refused, new_nonce
from monitor.api import problems as kinds
from monitor.api.middleware import too_many
from monitor.api.problems import Problem
from monitor.limits import TooMany
from swarm.wire.identity import NONCE_HEADER, SCHEME

BUSY_RETRY_S = 10
"""A third of the time between two questions: a crowd that was refused has gone by then."""

log = logging.getLogger(__name__)


def install(api: NinjaAPI) -> None:
    @api.exception_handler(Problem)
    def ours(request: HttpRequest, error: Problem) -> HttpResponse:
        return error.response()

    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        return Problem(
            kinds.INVALID, _in_words(error.errors), members={"errors": [_located(e) for e in error.errors]}
        ).response()

    @api.exception_handler(HttpError)
    def refused(request: HttpRequest, error: HttpError) -> HttpResponse:
        return Problem(kinds.of_status(error.status_code), str(error)).response()

    @api.exception_handler(Http404)
    def absent(request: HttpRequest, error: Http404) -> HttpResponse:
        return Problem(kinds.NO_SUCH_ADDRESS, str(error) or "there is nothing here").response()

    @api.exception_handler(Exception)
    def broken(request: HttpRequest, error: Exception) -> HttpResponse:
        # A door: whatever went wrong inside, the caller gets a plain answer and the log the traceback.
        log.exception("%s %s failed", request.method, request.path)
        return Problem(kinds.BROKEN, "this is our fault, and it is in our log").response()

    _install_refusals(api)
    _install_absences(api)


def _install_refusals(api: NinjaAPI) -> None:
    """What is not answered because of who asks, how often, or how much at once."""

    @api.exception_handler(TooMany)
    def asked_too_often(request: HttpRequest, error: TooMany) -> HttpResponse:
        return too_many(error)

    @api.exception_handler(Refused)
    def not_proved(request: HttpRequest, error: Refused) -> HttpResponse:
        """Brings a nonce, so that whoever used one that was too old can try again at once."""
        try:
            headers = {"WWW-Authenticate": SCHEME, NONCE_HEADER: new_nonce()}
        except CannotCheck as gone:
            return Problem(kinds.UNAVAILABLE, str(gone)).response()
        return Problem(kinds.UNSIGNED, str(error), headers).response()

    @api.exception_handler(RequestDataTooBig)
    def too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
        return Problem(kinds.TOO_LONG, "nothing that is read here is that long").response()

    @api.exception_handler(DisallowedHost)
    def other_host(request: HttpRequest, error: DisallowedHost) -> HttpResponse:
        return Problem(kinds.BAD_REQUEST, "this site does not answer to that host name").response()


def _install_absences(api: NinjaAPI) -> None:
    """What cannot be answered now, through no fault of the caller."""

    @api.exception_handler(CannotCheck)
    def cannot_check(request: HttpRequest, error: CannotCheck) -> HttpResponse:
        return Problem(kinds.UNAVAILABLE, str(error)).response()

    @api.exception_handler(NotSeen)
    def not_seen(request: HttpRequest, error: NotSeen) -> HttpResponse:
        return Problem(kinds.NOT_SEEN, str(error)).response()

    @api.exception_handler(OperationalError)
    @api.exception_handler(InterfaceError)
    def no_database(request: HttpRequest, error: Exception) -> HttpResponse:
        if isinstance(error.__cause__, (LockNotAvailable, DeadlockDetected)):
            return busy()
        log.warning("%s %s: the database does not answer (%s)", request.method, request.path, type(error).__name__)
        words = "this site's database does not answer; that says nothing about the swarm. Try again in 10 s"
        return Problem(kinds.UNAVAILABLE, words, {"Retry-After": "10"}).response()


def busy() -> HttpResponse:
    """For a server whose turn does not come: before Django (`coordinator.turns`), or at a lock that others hold."""
    words = "more servers ask than can be answered at once; that says nothing about the swarm. Stay, and ask again"
    return Problem(kinds.BUSY, words, {"Retry-After": str(BUSY_RETRY_S)}).response()


async def refuse(scope: dict[str, Any], receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """The same as an ASGI application."""
    response = busy()
    headers = [(name.lower().encode(), value.encode()) for name, value in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404: JSON for programs, a page for people."""
    if request.path.startswith("/api/"):
        return Problem(kinds.NO_SUCH_ADDRESS, f"there is no {request.path} here; see /api/v1/openapi.json").response()
    return render(request, "404.html", {"path": request.path}, status=404)


def _located(item: dict[str, Any]) -> dict[str, Any]:
    return {"where": ".".join(str(part) for part in item.get("loc", ())), "what": item.get("msg", "")}


def _in_words(errors: list[dict[str, Any]]) -> str:
    first = _located(errors[0]) if errors else {"where": "body", "what": "invalid"}
    return f"{first['where']}: {first['what']}"
