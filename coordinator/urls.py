"""The site's addresses: the monitor's pages and reads, and the coordinator's advice."""

from __future__ import annotations

from django.urls import include, path

from coordinator import errors, views
from coordinator.api import api

urlpatterns = [
    path("api/", api.urls),
    path("docs/errors", errors.listed, name="errors"),
    path("docs/errors/<slug:slug>", errors.one, name="error"),
    path("connect", views.connect, name="connect"),
    path("what-if", views.what_if, name="what-if"),
    path("hints", views.hints, name="hints"),
    path("hints/<uuid:hint_id>", views.one_hint, name="hint"),
    path("", include("monitor.urls")),
]

handler404 = "coordinator.problems.not_found"
