"""The site's addresses: the monitor's pages and reads, and the coordinator's advice."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from coordinator import views, wizard
from coordinator.api import api
from coordinator.chat import views as chat
from coordinator.docs import views as docs
from monitor.feeds.views import events

urlpatterns = [
    path("admin/", admin.site.urls),
    # Before the API, which describes what ends: a stream does not.
    path("api/v1/events", events, name="events"),
    path("api/", api.urls),
    path("docs/errors", docs.errors_page, name="errors"),
    path("docs/errors/<slug:slug>", docs.error_page, name="error"),
    path("connect", wizard.connect, name="connect"),
    path("connect/watch", wizard.watch, name="watch"),
    path("what-if", views.what_if, name="what-if"),
    path("docs/api", docs.api_page, name="docs-api"),
    path("how-we-measure", docs.measuring, name="how-we-measure"),
    path("hints", views.hints, name="hints"),
    path("hints/<uuid:hint_id>", views.one_hint, name="hint"),
    path("chat", chat.chat, name="chat"),
    path("chat/stream", chat.stream, name="chat-stream"),
    path("", include("monitor.urls")),
]

handler404 = "coordinator.problems.not_found"
