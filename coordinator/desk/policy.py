"""A looser content policy under /admin/, and there alone: the admin's scripts (Alpine) build functions from attributes, and it
styles with attributes. Nothing is allowed from other hosts there either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

ADMIN = "/admin/"
LOOSER = {
    "script-src": ["'self'", "'unsafe-eval'", "'unsafe-inline'"],
    "style-src": ["'self'", "'unsafe-inline'"],
    "font-src": ["'self'"],
}


@sync_and_async_middleware
def looser_under_admin(
    get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]:
    """To stand after `csp.middleware.CSPMiddleware`, which reads what this leaves on the response."""

    def loosen(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if request.path_info.startswith(ADMIN):
            response._csp_replace = LOOSER  # type: ignore[attr-defined]
        return response

    if iscoroutinefunction(get_response):

        async def waiting(request: HttpRequest) -> HttpResponse:
            return loosen(request, await get_response(request))

        return markcoroutinefunction(waiting)

    def answering(request: HttpRequest) -> HttpResponse:
        return loosen(request, get_response(request))  # type: ignore[arg-type]

    return answering
