"""Which swarm an address of the API means: `/s/NAME/api/v1/…`, or `?swarm=NAME`, or the first one.

A block server is given the site's address once. With `https://SITE/s/NAME` there all that it asks below, hints, leases,
reachability, is about that swarm; and the swarm stands in what it signs (`swarm.wire.identity`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import Http404, HttpRequest, QueryDict
from django.http.response import HttpResponseBase

from monitor.swarms import named

_OF_A_SWARM = re.compile(r"^/s/(?P<swarm>[A-Za-z0-9_\-]{1,64})(?P<rest>/api/v1/.*)$")

Answer = HttpResponseBase
Handler = Callable[[HttpRequest], Answer | Awaitable[Answer]]


class SwarmInPath:
    """Middleware: turns the first form into the second, for every address of the API alike."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer | Awaitable[Answer]:
        found = _OF_A_SWARM.match(request.path_info)
        if found is not None:
            query = QueryDict(request.META.get("QUERY_STRING", ""), mutable=True)
            query["swarm"] = found["swarm"]
            request.META["QUERY_STRING"] = query.urlencode()
            # Read from the line above when somebody asks; what was read before is of the address as it came.
            request.__dict__.pop("GET", None)
            request.path = request.path_info = found["rest"]
        return self._get_response(request)


def swarm_of(request: HttpRequest) -> str:
    """The name of the swarm that is meant; 404 for one that is not watched here."""
    name = request.GET.get("swarm", "")
    watched = named(name)
    if watched is None:
        raise Http404(f"no swarm {name!r} is watched here; /api/v1/swarms lists those that are")
    return watched.name


def signed_path(request: HttpRequest) -> str:
    """What stands in a signature: the address below the site's own, with its swarm, so that no question can be passed on to
    another swarm."""
    name = request.GET.get("swarm", "")
    return f"/s/{name}{request.path_info}" if name else request.path_info
