"""Starts a server on a free port, once more when somebody else took that port in between. Knows no particular server."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.launch import ports
from coordinator.launch.child import Child, Recipe
from coordinator.launch.supervisor import ChildFailed, Supervisor

ATTEMPTS = 3


def start_listener(
    supervisor: Supervisor,
    recipe_on: Callable[[int], Recipe],
    answers_on: Callable[[int], bool],
    limit_s: float,
) -> int:
    """The port on which it answers."""
    attempt = 1
    while True:
        port = ports.free_port()
        started = supervisor.start(recipe_on(port))
        try:
            _wait(supervisor, started, port, answers_on, limit_s)
        except ChildFailed as failure:
            lost_the_race = any("in use" in line for line in failure.last_lines)
            if attempt == ATTEMPTS or not lost_the_race or started.exit_status() is None:
                raise
            supervisor.forget(started)
            attempt += 1
        else:
            return port


def _wait(supervisor: Supervisor, started: Child, port: int, answers_on: Callable[[int], bool], limit_s: float) -> None:
    supervisor.wait(f"{started.name} to answer", lambda: answers_on(port) or None, limit_s, started)
