"""WebSocket addresses: `/ws/overview` and `/ws/m/PREFIX`, the page keys of `monitor.live`."""

from __future__ import annotations

from django.urls import re_path

from monitor.consumers import PageConsumer

websocket_urlpatterns = [re_path(r"^ws/(?P<page>overview|m/[A-Za-z0-9_\-]{1,128})$", PageConsumer.as_asgi())]
