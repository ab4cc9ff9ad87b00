"""The site's addresses: the monitor's pages and reads, and the coordinator's advice."""

from __future__ import annotations

from django.urls import include, path

from coordinator import views
from coordinator.api import api
from coordinator.chat import views as chat

urlpatterns = [
    path("api/v1/", api.urls),
    path("connect", views.connect, name="connect"),
    path("what-if", views.what_if, name="what-if"),
    path("hints", views.hints, name="hints"),
    path("hints/<uuid:hint_id>", views.one_hint, name="hint"),
    path("chat", chat.chat, name="chat"),
    path("chat/stream", chat.stream, name="chat-stream"),
    path("", include("monitor.urls")),
]

handler404 = "coordinator.problems.not_found"
