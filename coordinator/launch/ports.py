"""Free TCP ports on loopback. Does not hold them: whoever is given one binds it, and is asked again when it lost the race."""

from __future__ import annotations

import socket

from coordinator.launch.terminal import say
from swarm.errors import LocalError

LOOPBACK = "127.0.0.1"
DEFAULT_SITE_PORT = 8000
DEFAULT_GATEWAY_PORT = 8900


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def site_port(asked: int | None) -> int:
    """The port that was asked for, or the default one, or any free one where nobody asked."""
    if asked is not None:
        if not 1 <= asked <= 65535:
            raise LocalError(f"--port {asked}: a port is a number from 1 to 65535.")
        if not is_free(asked):
            raise LocalError(f"Port {asked} is taken (or not allowed). Choose another with --port, or leave --port out.")
        return asked
    if is_free(DEFAULT_SITE_PORT):
        return DEFAULT_SITE_PORT
    port = free_port()
    say(f"Port {DEFAULT_SITE_PORT} is taken; the site uses port {port} instead. Choose one with --port.")
    return port


def gateway_port(site: int) -> int:
    """The default one, or any free one where that is taken, or about to be by the site."""
    if site != DEFAULT_GATEWAY_PORT and is_free(DEFAULT_GATEWAY_PORT):
        return DEFAULT_GATEWAY_PORT
    port = free_port()
    say(f"Port {DEFAULT_GATEWAY_PORT} is taken; the gateway uses port {port} instead.")
    return port
