"""Tells systemd how this service is (`Type=notify`): a datagram to the socket that it names in the environment.

Without `NOTIFY_SOCKET` nothing is sent, so that the same program runs in a shell.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Systemd:
    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_us = environment.get("WATCHDOG_USEC", "")

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often to call `alive`: twice in the time after which systemd takes the service for dead."""
        if not self._address or not self._watchdog_us.isdigit():
            return None
        return int(self._watchdog_us) / 2e6

    def ready(self, status: str) -> bool:
        return self._say(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, status: str) -> bool:
        return self._say(f"STATUS={_one_line(status)}")

    def alive(self) -> bool:
        return self._say("WATCHDOG=1")

    def stopping(self) -> bool:
        return self._say("STOPPING=1\nSTATUS=leaving the swarm")

    def _say(self, message: str) -> bool:
        """Whether it was sent."""
        if not self._address:
            return False
        # An abstract socket is written with @ and addressed with a zero byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.sendto(message.encode(), address)
        except OSError:
            return False
        return True


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
