"""WebSocket addresses: `/ws/overview`, `/ws/m/PREFIX`, `/ws/changes`, `/ws/s/SWARM/…`: the keys of `monitor.live`."""

from __future__ import annotations

from django.urls import re_path

from monitor.consumers import PageConsumer

websocket_urlpatterns = [
    re_path(r"^ws/(?P<page>(?:s/[A-Za-z0-9_\-]{1,64}/)?(?:overview|changes|m/[A-Za-z0-9_\-]{1,128}))$", PageConsumer.as_asgi())
]
