"""The monitor's pages and its addresses for machines that are not under /api/v1."""

from __future__ import annotations

from django.urls import include, path, re_path

from monitor import scrape, views
from monitor.history import views as history

urlpatterns = [
    path("", views.overview, name="overview"),
    re_path(r"^m/(?P<prefix>[A-Za-z0-9_\-]{1,128})$", views.model, name="model"),
    re_path(r"^s/(?P<swarm>[A-Za-z0-9_\-]{1,64})/$", views.overview),
    re_path(r"^s/(?P<swarm>[A-Za-z0-9_\-]{1,64})/m/(?P<prefix>[A-Za-z0-9_\-]{1,128})$", views.model),
    path("", include("monitor.feeds.urls")),
    path("", include("monitor.alerts.urls")),
    path("", include("monitor.exports.urls")),
    path("incidents", history.incidents, name="incidents"),
    path("incidents/<int:incident_id>", history.incident, name="incident"),
    path("metrics", scrape.metrics, name="metrics"),
    path("api/prometheus", scrape.metrics),
    path("fresh", scrape.fresh, name="fresh"),
    path("livez", views.livez),
    path("healthz", views.livez),
    path("readyz", views.readyz),
]
