"""Errors under /api/ as RFC 9457 problem details: what is wrong, and what to do. Never a traceback."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from coordinator.limits import TooMany
from coordinator.signatures import CannotCheck, Refused, new_nonce
from swarm.wire.identity import NONCE_HEADER, SCHEME

log = logging.getLogger(__name__)


def problem(status: int, detail: str, **more: Any) -> JsonResponse:
    title = HTTPStatus(status).phrase
    body = {"type": f"/docs/api#problem-{status}", "title": title, "status": status, "detail": detail, **more}
    response = JsonResponse(body, status=status, content_type="application/problem+json")
    response["Access-Control-Allow-Origin"] = "*"
    return response


def install(api: NinjaAPI) -> None:
    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        return problem(422, _in_words(error.errors), errors=[_located(item) for item in error.errors])

    @api.exception_handler(HttpError)
    def refused(request: HttpRequest, error: HttpError) -> HttpResponse:
        return problem(error.status_code, str(error))

    @api.exception_handler(Http404)
    def absent(request: HttpRequest, error: Http404) -> HttpResponse:
        return problem(404, str(error) or "there is nothing here")

    @api.exception_handler(OperationalError)
    @api.exception_handler(InterfaceError)
    def no_database(request: HttpRequest, error: Exception) -> HttpResponse:
        log.warning("%s: the database does not answer (%s)", request.path, type(error).__name__)
        response = problem(503, "this site's database does not answer; that says nothing about the swarm. Try again in 10 s")
        response["Retry-After"] = "10"
        return response

    @api.exception_handler(Exception)
    def broken(request: HttpRequest, error: Exception) -> HttpResponse:
        # A door: whatever went wrong inside, the caller gets a plain answer and the log the traceback.
        log.exception("%s %s failed", request.method, request.path)
        return problem(500, "this is our fault, and it is in our log")

    _install_refusals(api)


def _install_refusals(api: NinjaAPI) -> None:
    """What is not answered because of who asks, how often, or how much at once."""

    @api.exception_handler(TooMany)
    def too_many(request: HttpRequest, error: TooMany) -> HttpResponse:
        response = problem(429, str(error))
        response["Retry-After"] = str(error.retry_after_s)
        return response

    @api.exception_handler(Refused)
    def not_proved(request: HttpRequest, error: Refused) -> HttpResponse:
        """Brings a nonce, so that whoever used one that was too old can try again at once."""
        response = problem(401, str(error))
        response["WWW-Authenticate"] = SCHEME
        try:
            response[NONCE_HEADER] = new_nonce()
        except CannotCheck as gone:
            return cannot_check(request, gone)
        return response

    @api.exception_handler(CannotCheck)
    def cannot_check(request: HttpRequest, error: CannotCheck) -> HttpResponse:
        response = problem(503, str(error))
        response["Retry-After"] = "30"
        return response

    @api.exception_handler(RequestDataTooBig)
    def too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
        return problem(413, "nothing that is read here is that long")

    @api.exception_handler(DisallowedHost)
    def other_host(request: HttpRequest, error: DisallowedHost) -> HttpResponse:
        return problem(400, "this site does not answer to that host name")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404: JSON for programs, a page for people."""
    if request.path.startswith("/api/"):
        return problem(404, f"there is no {request.path} here; see /api/v1/docs")
    return render(request, "404.html", {"path": request.path}, status=404)


def _located(item: dict[str, Any]) -> dict[str, Any]:
    return {"where": ".".join(str(part) for part in item.get("loc", ())), "what": item.get("msg", "")}


def _in_words(errors: list[dict[str, Any]]) -> str:
    first = _located(errors[0]) if errors else {"where": "body", "what": "invalid"}
    return f"{first['where']}: {first['what']}"
