"""The site's addresses: the monitor's pages and reads, and the coordinator's advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.urls import include, path

from coordinator import views, wizard
from coordinator.api import api
from coordinator.chat import views as chat
from coordinator.docs import views as docs
from monitor.feeds.views import events

_PAGES: list[tuple[str, Callable[..., Any], str]] = [
    ("connect", wizard.connect, "connect"),
    ("connect/watch", wizard.watch, "watch"),
    ("what-if", views.what_if, "what-if"),
    ("hints", views.hints, "hints"),
    ("hints/<uuid:hint_id>", views.one_hint, "hint"),
    ("chat", chat.chat, "chat"),
    ("chat/stream", chat.stream, "chat-stream"),
]
"""Each also stands under `/s/SWARM/`, as the monitor's pages do."""

urlpatterns = [
    path("admin/", admin.site.urls),
    # Before the API, which describes what ends: a stream does not.
    path("api/v1/events", events, name="events"),
    path("api/", api.urls),
    path("docs/errors", docs.errors_page, name="errors"),
    path("docs/errors/<slug:slug>", docs.error_page, name="error"),
    path("docs/api", docs.api_page, name="docs-api"),
    path("how-we-measure", docs.measuring, name="how-we-measure"),
    *(path(address, view, name=name) for address, view, name in _PAGES),
    *(path(f"s/<slug:swarm>/{address}", view) for address, view, _ in _PAGES),
    path("", include("monitor.urls")),
]

handler404 = "coordinator.problems.not_found"
