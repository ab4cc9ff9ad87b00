"""The monitor's pages and its addresses for machines that are not under /api/v1."""

from __future__ import annotations

from collections.abc import Callable

from django.http.response import HttpResponseBase
from django.urls import include, path, re_path

from monitor import scrape, views

SWARM = r"s/(?P<swarm>[A-Za-z0-9_\-]{1,64})/"
PREFIX = r"(?P<prefix>[A-Za-z0-9_\-]{1,128})"
PEER = r"(?P<peer_id>[A-Za-z0-9]{1,64})"

_PAGES: list[tuple[str, Callable[..., HttpResponseBase], str]] = [
    ("", views.overview, "overview"),
    (f"m/{PREFIX}", views.model, "model"),
    (f"p/{PEER}", views.peer, "peer"),
    ("incidents", views.incidents, "incidents"),
    (r"incidents/(?P<incident_id>[0-9]{1,18})", views.incident, "incident"),
    ("search", views.search, "search"),
]
"""Each also stands under `/s/SWARM/`; addresses that name no swarm mean the first."""

urlpatterns = [
    *(re_path(f"^{address}$", view, name=name) for address, view, name in _PAGES),
    *(re_path(f"^{SWARM}{address}$", view) for address, view, _ in _PAGES),
    path("", include("monitor.feeds.urls")),
    path("", include("monitor.alerts.urls")),
    path("", include("monitor.exports.urls")),
    path("theme", views.theme, name="theme"),
    path("metrics", scrape.metrics, name="metrics"),
    path("api/prometheus", scrape.metrics),
    path("fresh", scrape.fresh, name="fresh"),
    path("livez", views.livez),
    path("healthz", views.livez),
    path("readyz", views.readyz),
]
