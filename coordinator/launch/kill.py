"""`kill -9` for one server of the running demo. Knows demo.json and the site's API; makes sure of whom it kills."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coordinator.launch import kernel, loopback
from coordinator.launch.choose import choose
from coordinator.launch.run_folder import RunFolder, read_json
from coordinator.launch.terminal import say
from swarm.errors import LocalError
from swarm.wire.spans import Span

ONLINE = "online"


def kill_one(run_dir: Path, number: int | None) -> None:
    demo = read_json(RunFolder(run_dir.absolute()).demo)
    if not isinstance(demo, dict):
        raise LocalError(f"No demo is running with the run folder {run_dir.absolute()}. Start one with: make demo")
    alive = {server["name"]: server for server in demo["servers"] if _is_it(server)}
    if not alive:
        raise LocalError("Every server of the demo has ended already.")
    if number is not None:
        chosen, reason = alive.get(f"server-{number}"), "as you asked"
        if chosen is None:
            raise LocalError(f"There is no running server-{number}; there are: {', '.join(alive)}.")
    else:
        held = held_spans(list(alive.values()), loopback.document(_port(demo), "/api/v1/models"))
        choice = choose(held, [server["peer_id"] for server in alive.values()])
        chosen = next(server for server in alive.values() if server["peer_id"] == choice.peer_id)
        reason = choice.reason
    kernel.send(chosen["pid"], signal.SIGKILL)
    say(f"Killed {chosen['name']} (pid {chosen['pid']}, …{chosen['peer_id'][-6:]}): {reason}.")


def held_spans(servers: Sequence[Mapping[str, Any]], answer: Any) -> dict[str, Span]:
    """Who serves what, as the site sees it; as the servers said themselves where the site does not answer, or has not seen them
    yet."""
    own = {server["peer_id"]: Span(*server["span"]) for server in servers if server.get("span")}
    for model in answer.get("items", ()) if isinstance(answer, dict) else ():
        seen = {
            server["peer_id"]: Span(server["start"], server["end"])
            for server in model["servers"]
            if str(server["state"]).lower() == ONLINE
        }
        if seen.keys() & own.keys():
            return {**own, **seen}
    return own


def _is_it(server: Mapping[str, Any]) -> bool:
    """The same process as at the time of recording, and one that serves."""
    if not server.get("pid"):
        return False
    process = kernel.mark(server["pid"])
    return process is not None and process.started == server["started"] and "serve" in process.command


def _port(demo: Mapping[str, Any]) -> int:
    return urlsplit(demo["site"]).port or 80
