"""The demo's swarm on loopback: bootstrap peers and a few block servers, started one after another.

Knows their ready files and logs. The order of arrival matters: each server chooses its span by what it finds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator.launch import commands, kernel, ports
from coordinator.launch.child import Child, Recipe, Stage
from coordinator.launch.follow import Follower
from coordinator.launch.run_folder import PROJECT, RunFolder, read_json
from coordinator.launch.site import wait_for_ready_file
from coordinator.launch.supervisor import ChildFailed, Supervisor
from coordinator.launch.terminal import say
from swarm.errors import LocalError

# Long enough to finish a step and to tell the DHT that it leaves.
SERVER_GRACE_S = 10.0
WORTH_SHOWING = re.compile(r"\b(INFO|WARN|WARNING|ERROR|CRITICAL)\b")


def sepal_program() -> str:
    beside = Path(sys.executable).with_name("sepal")
    if not beside.exists():
        raise LocalError(f"There is no {beside}: install the project into this environment (pip install -e '.[demo]').")
    return str(beside)


def start_bootstraps(supervisor: Supervisor, folder: RunFolder, env: Mapping[str, str], count: int) -> list[Child]:
    """The first makes the swarm; the others join it through the first."""
    first = _start_bootstrap(supervisor, folder, env, "bootstrap")
    known = (bootstrap_address(supervisor, folder, first),) if count > 1 else ()
    return [first, *(_start_bootstrap(supervisor, folder, env, f"bootstrap-{n}", known) for n in range(2, count + 1))]


def _start_bootstrap(
    supervisor: Supervisor, folder: RunFolder, env: Mapping[str, str], name: str, initial_peers: tuple[str, ...] = ()
) -> Child:
    ready = folder.ready_file(name)
    ready.unlink(missing_ok=True)
    # A port of its own for good: all others know the address, and it must still be right after a restart.
    maddr = f"/ip4/{ports.LOOPBACK}/tcp/{ports.free_port()}"
    identity = str(folder.path / f"{name}.id")
    peer = commands.Bootstrap(host_maddr=maddr, identity_path=identity, ready_file=str(ready), initial_peers=initial_peers)
    recipe = Recipe(name=name, command=peer.command(sepal_program()), stage=Stage.BOOTSTRAP, env=env, cwd=PROJECT, grace_s=5.0)
    return supervisor.start(recipe)


def bootstrap_address(supervisor: Supervisor, folder: RunFolder, bootstrap: Child) -> str:
    wait_for_ready_file(supervisor, folder, bootstrap)
    said = read_json(folder.ready_file(bootstrap.name))
    addresses = said.get("addresses") if isinstance(said, dict) else None
    if not addresses:
        raise ChildFailed(f"{bootstrap.name} wrote no address into its ready file.", bootstrap)
    return str(addresses[0])


@dataclass(slots=True)
class DemoServer:
    child: Child
    ready_file: Path
    log: Follower
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.child.name

    @property
    def peer_id(self) -> str:
        return str(self.said.get("peer_id", ""))

    def read(self) -> bool:
        """True when the ready file says something new: it is written again after a move."""
        said = read_json(self.ready_file)
        changed = isinstance(said, dict) and said != self.said
        if changed:
            self.said = said
        return changed

    def echo(self) -> None:
        for line in self.log.new_lines():
            if WORTH_SHOWING.search(line):
                say(f"{self.name} │ {line}")

    def entry(self) -> dict[str, Any]:
        """For demo.json. `started` tells this process from a later one with its pid."""
        process = self._process()
        return {
            "name": self.name,
            "pid": process.pid if process else None,
            "started": process.started if process else None,
            "peer_id": self.peer_id,
            "span": self.said.get("span"),
            "ready_file": str(self.ready_file),
            "log": str(self.child.log),
        }

    def _process(self) -> kernel.Mark | None:
        """The pid that the ready file names, if it is below our leash; else the first one that is."""
        below = kernel.descendants(self.child.process.pid)
        pid = self.said.get("pid")
        chosen = pid if pid in below else next(iter(below), None)
        return kernel.mark(chosen) if isinstance(chosen, int) else None


def start_server(
    supervisor: Supervisor,
    folder: RunFolder,
    env: Mapping[str, str],
    name: str,
    server: commands.Server,
    each_poll: Callable[[], None],
) -> DemoServer:
    """Returns when it is online; its own words are shown meanwhile."""
    ready = Path(server.ready_file)
    ready.unlink(missing_ok=True)
    recipe = Recipe(
        name=name,
        command=server.command(sepal_program()),
        stage=Stage.SERVER,
        env={**env, "OMP_NUM_THREADS": "1"},
        cwd=PROJECT,
        grace_s=SERVER_GRACE_S,
        essential=False,
    )
    started = supervisor.start(recipe)
    demo_server = DemoServer(started, ready, Follower(started.log))

    def follow() -> None:
        demo_server.echo()
        each_poll()

    wait_for_ready_file(supervisor, folder, started, each_poll=follow)
    demo_server.read()
    return demo_server
