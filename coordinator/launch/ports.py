"""Free TCP ports on loopback. Does not hold them: whoever is given one binds it, and is asked again when it lost the race."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from coordinator.launch.terminal import say
from swarm.errors import LocalError

LOOPBACK = "127.0.0.1"
DEFAULT_SITE_PORT = 8000
DEFAULT_GATEWAY_PORT = 8900
FIRST_CHOSEN = 10_000
"""Below are the ports that programs of this world have by default."""
FEWEST_TO_CHOOSE_FROM = 1_000
TRIES = 20
PASSING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One that the kernel gives to no outgoing connection meanwhile: a program that loads torch binds it seconds later, and
    one that is started anew wants it back. Where its system leaves no such ports, any free one."""
    before = _first_passing()
    if before - FIRST_CHOSEN >= FEWEST_TO_CHOOSE_FROM:
        for _ in range(TRIES):
            port = FIRST_CHOSEN + secrets.randbelow(before - FIRST_CHOSEN)
            if is_free(port):
                return port
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _first_passing() -> int:
    """The first of the ports that the kernel chooses by itself; 0 where it does not say."""
    try:
        return int(PASSING.read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


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
