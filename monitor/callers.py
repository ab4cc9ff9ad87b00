"""Who asks, behind our own proxies: what limits are counted by. Never stored."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

from monitor.reachability import caller_address


def caller_of(request: HttpRequest) -> str:
    """An address, or the /64 of an IPv6 customer; `unknown` where the web server is asked over a Unix socket."""
    forwarded = request.headers.get("X-Forwarded-For", "")
    text = caller_address(request.META.get("REMOTE_ADDR", ""), forwarded, settings.SEPAL_TRUSTED_PROXIES)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "unknown"
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else text
