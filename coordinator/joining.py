"""The last steps of joining: commands to run, and how far a server that was started has come. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from swarm.snapshot import Model, PeerState, Server

ASK_FOR_ADDRESS = "ADDRESS"
"""Stands where the site's operator has given no public bootstrap address."""

WAYS = ("pip", "container", "systemd")


def command(way: str, prefix: str, num_blocks: int | None, addresses: Sequence[str], site: str) -> str:
    """What to type or to put into a file. MODEL_FOLDER stays to be filled in."""
    arguments = [
        f"--prefix {shlex.quote(prefix)}",
        *(f"--initial-peers {shlex.quote(address)}" for address in addresses or (ASK_FOR_ADDRESS,)),
        f"--coordinator {shlex.quote(site)}",
        *([f"--num-blocks {num_blocks}"] if num_blocks else []),
    ]
    if way == "container":
        mounted = "docker run -v ./MODEL_FOLDER:/model:ro -v sepal-state:/state -p 31330:31330 sepal-blockserver"
        listening = "--host-maddrs /ip4/0.0.0.0/tcp/31330"
        return _lines(mounted, "sepal serve /model", *arguments, listening, "--identity-path /state/server.id")
    if way == "systemd":
        serve = "ExecStart=/opt/sepal/.venv/bin/sepal serve MODEL_FOLDER"
        unit = _lines(serve, *arguments, "--identity-path /var/lib/sepal-server/server.id")
        return f"[Service]\nDynamicUser=yes\nStateDirectory=sepal-server\n{unit}\nRestart=always"
    return "pip install '.[blockserver]'\n" + _lines("sepal serve MODEL_FOLDER", *arguments, "--identity-path server.id")


def _lines(*parts: str) -> str:
    return " \\\n  ".join(parts)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the checklist: `state` is done, now or later."""

    state: str
    symbol: str
    name: str
    words: str


def checklist(model: Model, peer_id: str) -> tuple[Step, ...]:
    """announced → loading → reachable → serving, as far as the last check saw it."""
    server = next((server for server in model.servers if server.peer_id == peer_id), None)
    reached = _reached(server)
    unreachable = server is not None and server.state is PeerState.UNREACHABLE
    steps = (
        ("announced", f"it announces {server.span.in_words()}" if server else "usually within a minute of the start"),
        ("loading", "it says that its blocks are loaded" if reached > 1 else "minutes, by the size of the blocks and the disk"),
        ("reachable", "our last check reached it" if reached > 2 else _NOT_REACHED[unreachable]),
        ("serving", "clients may use it now" if reached > 3 else "from then on clients may use it"),
    )
    signs = [("done", "✓")] * reached + [("now", "◐")] + [("later", "○")] * len(steps)
    return tuple(Step(*sign, *step) for sign, step in zip(signs, steps, strict=False))


_NOT_REACHED = {
    True: "our last check could not connect: is its port open, or forwarded?",
    False: "checked with each look at the swarm, once it says that it is online",
}


def _reached(server: Server | None) -> int:
    """How many steps lie behind it."""
    if server is None:
        return 0
    return {PeerState.JOINING: 1, PeerState.UNREACHABLE: 2, PeerState.NOT_CHECKED: 2, PeerState.ONLINE: 4}.get(server.state, 0)
