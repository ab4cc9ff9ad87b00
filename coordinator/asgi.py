"""The web process: pages and API over HTTP, live fragments over WebSockets."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
http = get_asgi_application()

# Only now are Django's applications ready to be imported from.
from monitor.api.shortcut import Shortcut  # noqa: E402
from monitor.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {"http": Shortcut(http), "websocket": AllowedHostsOriginValidator(URLRouter(websocket_urlpatterns))}
)
