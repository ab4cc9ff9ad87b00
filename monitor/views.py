"""Doors of the pages: what is asked for, from the database, through a template. None of them needs Redis or the DHT."""

from __future__ import annotations

import time

from django.conf import settings
from django.core.cache import cache
from django.db import Error as DatabaseError
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from monitor import context, live, queries
from monitor.parts import Rendered
from monitor.published import ago, timely
from monitor.search import find
from monitor.swarms import WatchedSwarm, named
from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id

ALL = "all"
"""What a page asks for that wants every part."""


@require_safe
def overview(request: HttpRequest, swarm: str = "") -> HttpResponse:
    return _page(request, "overview", swarm)


@require_safe
def model(request: HttpRequest, prefix: str, swarm: str = "") -> HttpResponse:
    return _page(request, live.model_key(prefix), swarm)


@require_safe
def peer(request: HttpRequest, peer_id: str, swarm: str = "") -> HttpResponse:
    try:
        parse_peer_id(peer_id)
    except BadRecord as error:
        raise Http404(f"{peer_id} is no peer id") from error
    return _page(request, f"p/{peer_id}", swarm)


@require_safe
def incidents(request: HttpRequest, swarm: str = "") -> HttpResponse:
    return _page(request, "incidents", swarm or request.GET.get("swarm", ""))


@require_safe
def incident(request: HttpRequest, incident_id: int, swarm: str = "") -> HttpResponse:
    return _page(request, f"incidents/{incident_id}", swarm or request.GET.get("swarm", ""))


@require_safe
def search(request: HttpRequest, swarm: str = "") -> HttpResponse:
    """To the one thing that was meant, or a list of what it may be."""
    watched = _swarm(swarm)
    found = find(queries.watch(watched.name), request.GET.get("q", ""))
    if found.only is not None:
        return HttpResponseRedirect(watched.base + found.only.address)
    return render(request, "monitor/search.html", {"found": found, "swarm": watched}, status=200 if found.hits else 404)


@require_safe
def theme(request: HttpRequest) -> HttpResponse:
    """Keeps the choice in a cookie and leads back. It is no secret and changes nothing but colours, so a link may do it."""
    back = request.GET.get("back", "/")
    local = url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith("/")
    response = HttpResponseRedirect(back if local else "/")
    chosen = request.GET.get("to", "")
    if chosen in context.THEMES:
        kept_s = context.THEME_KEPT_S
        response.set_cookie(context.THEME, chosen, max_age=kept_s, samesite="Lax", secure=request.is_secure(), httponly=True)
    response["Cache-Control"] = "no-store"
    return response


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """For people and load balancers: one line a check, 503 where one fails."""
    database = _database_fault()
    checks = {"db": database, "redis": _redis_fault(), "crawl": _crawl_fault() if not database else "not known without db"}
    lines = [f"[-]{name} {fault}\n" if fault else f"[+]{name} ok\n" for name, fault in checks.items()]
    return HttpResponse("".join(lines), status=503 if any(checks.values()) else 200, content_type="text/plain")


def _swarm(name: str) -> WatchedSwarm:
    watched = named(name)
    if watched is None:
        raise Http404(f"no swarm {name!r} is watched here")
    return watched


def _page(request: HttpRequest, key: str, swarm: str) -> HttpResponse:
    """The whole page, or with `?fragment=` those of its parts that a page that is open already has to catch up with."""
    watched = _swarm(swarm)
    rendered = live.render(key, queries.watch(watched.name), request.GET)
    status = 200 if rendered.found else 404
    wanted = request.GET.get("fragment")
    if wanted is not None:
        return _fragment(request, rendered, wanted)
    socket = live.page_of(watched.name, live.socket_of(key))
    response = render(request, "monitor/page.html", {"rendered": rendered, "socket": socket, "swarm": watched}, status=status)
    response["Cache-Control"] = "no-cache"
    return response


def _fragment(request: HttpRequest, rendered: Rendered, wanted: str) -> HttpResponse:
    """JSON, in whole or the parts that are named; 304 where the page has it all. Also of what is not there: it says so."""
    if request.headers.get("If-None-Match") == rendered.etag:
        response = HttpResponse(status=304)
    else:
        names = frozenset() if wanted == ALL else frozenset(wanted.split(","))
        response = JsonResponse(rendered.document(names))
    response["ETag"] = rendered.etag
    response["Cache-Control"] = "no-cache"
    return response


def _database_fault() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return f"does not answer ({type(error).__name__})"
    return ""


def _redis_fault() -> str:
    try:
        cache.set("readyz", 1, timeout=10)
    except RedisError as error:
        return f"does not answer ({type(error).__name__})"
    return ""


def _crawl_fault() -> str:
    at = queries.last_success_at(settings.SEPAL_SWARM)
    if at is None:
        return "none has succeeded yet"
    now = time.time()
    if timely(at, now, settings.SEPAL_CRAWL_INTERVAL_S):
        return ""
    if at > now:
        return f"last success dated {ago(at - now)} ahead: the clock was set back since"
    return f"last success {ago(now - at)} ago, expected every {settings.SEPAL_CRAWL_INTERVAL_S:g} s"
