"""An own Valkey below the run folder: on loopback, with a password and an append-only file; knows when it answers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

from coordinator.launch import ports
from coordinator.launch.child import Recipe, Stage
from coordinator.launch.listener import start_listener
from coordinator.launch.run_folder import kept_secret, write_atomically
from coordinator.launch.supervisor import Supervisor
from coordinator.launch.unprivileged import Identity

READY_LIMIT_S = 60.0


def start_valkey(supervisor: Supervisor, program: Path, home: Path, identity: Identity | None, env: Mapping[str, str]) -> str:
    """The URL of a server that answers."""
    data = home / "valkey"
    data.mkdir(mode=0o700, exist_ok=True)
    password = kept_secret(home / "valkey.password")

    def recipe_on(port: int) -> Recipe:
        settings = data / "valkey.conf"
        write_atomically(settings, _settings(data, port, password), mode=0o600)
        for path in (data, settings):
            if identity is not None:
                identity.own(path)
        command = [str(program), str(settings)]
        return Recipe(name="valkey", command=command, stage=Stage.VALKEY, env=env, cwd=data, leashed=False, identity=identity)

    port = start_listener(supervisor, recipe_on, lambda port: _answers(port, password), READY_LIMIT_S)
    return f"redis://:{password}@{ports.LOOPBACK}:{port}/0"


def _settings(data: Path, port: int, password: str) -> str:
    # A file, not arguments: everybody on the machine can read a command line.
    lines = [
        f"bind {ports.LOOPBACK}",
        f"port {port}",
        "protected-mode yes",
        f"requirepass {password}",
        f'dir "{data}"',
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "daemonize no",
    ]
    return "\n".join(lines) + "\n"


def _answers(port: int, password: str) -> bool:
    """PING, in the protocol's inline form; while it loads its file it says so instead of PONG."""
    with contextlib.suppress(OSError), socket.create_connection((ports.LOOPBACK, port), timeout=2) as connection:
        connection.sendall(f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode())
        answer = b""
        while received := connection.recv(1024):
            answer += received
        return b"+PONG" in answer
    return False
