"""What the web process serves: pages and API over HTTP, live fragments over WebSockets. How it does is `coordinator.web`'s."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

from coordinator.closing import Closing
from coordinator.turns import Turns

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
django = get_asgi_application()

# Only now are Django's applications ready to be imported from.
from coordinator.problems import refuse  # noqa: E402
from monitor.api.shortcut import Shortcut  # noqa: E402
from monitor.routing import websocket_urlpatterns  # noqa: E402

http = Closing(Turns(django, refuse))
application = ProtocolTypeRouter(
    {"http": Shortcut(http), "websocket": AllowedHostsOriginValidator(URLRouter(websocket_urlpatterns))}
)
