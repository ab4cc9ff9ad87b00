"""The swarm that is recorded: bootstrap peers and block servers, each a process of its own on loopback, under a leash.

Does to them what it is told, and writes down what it did and what became of it. Lives on the main thread, as all children do.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.churn.lines import Lines
from benchmarks.churn.plan import BOOTSTRAPS, FREE, Act, Step
from coordinator.launch import kernel
from coordinator.launch.child import Child, Recipe, Stage
from coordinator.launch.ports import free_port
from coordinator.launch.run_folder import PROJECT, RunFolder, read_json
from coordinator.launch.supervisor import Supervisor

SEPAL = (sys.executable, "-m", "blockserver.cli")
UPDATE_PERIOD_S, CONFIRM_S, DWELL_S = 10, 8, 20
"""Short, as the whole recording is: a volunteer's server announces every 120 s and stays 600 s. A record still lives 60 s."""
GRACE_S = 10.0
AGAIN_AFTER_S = 5.0
"""As a service manager does: a server that finds no bootstrap peer gives up, and is started again."""


class Swarm:
    def __init__(self, supervisor: Supervisor, folder: RunFolder, model: Path, lines: Lines) -> None:
        self._supervisor, self._folder, self._model, self._lines = supervisor, folder, model, lines
        self._ports = {name: free_port() for name in BOOTSTRAPS}
        self._running: dict[str, Child] = {}
        self._said: dict[str, Any] = {}
        self._frozen: dict[str, list[int]] = {}
        self._ending: set[str] = set()
        self._again: dict[str, float] = {}
        self._spans: dict[str, tuple[int, int] | None] = {}
        self.addresses: dict[str, str] = {}

    def do(self, step: Step) -> None:
        """Whoever is still on its way out or in is let go on: the step is then none, and not written down."""
        child = self._running.get(step.who)
        if step.act is Act.START:
            if child is None:
                self._start(step.who, step.span)
        elif child is not None and child.exit_status() is None:
            _DONE[step.act](self, step.who, child)

    def look(self) -> None:
        """Called often: who is ready, who has moved, who has ended."""
        for name, child in list(self._running.items()):
            said = read_json(self._folder.ready_file(name))
            if isinstance(said, dict) and said != self._said.get(name):
                self._lines.event("moved" if name in self._said else "ready", name, said.get("span"))
                self._said[name] = said
                if "addresses" in said:
                    self.addresses[name] = str(said["addresses"][0])
            if child.exit_status() is not None:
                self._ended(name, child)
        for name, at in list(self._again.items()):
            if time.monotonic() >= at:
                self.do(Step(0.0, Act.START, name, self._spans.get(name)))

    def _ended(self, name: str, child: Child) -> None:
        self._lines.event("ended", name)
        self._supervisor.forget(child)
        del self._running[name]
        self._said.pop(name, None)
        if name not in self._ending:
            self._again[name] = time.monotonic() + AGAIN_AFTER_S

    def all_ready(self, names: tuple[str, ...]) -> bool:
        return all(name in self._said for name in names)

    def thaw_all(self) -> None:
        """A frozen process does not even end."""
        for name in list(self._frozen):
            self._thaw(name)

    def _start(self, name: str, span: tuple[int, int] | None) -> None:
        ready = self._folder.ready_file(name)
        ready.unlink(missing_ok=True)
        self._lines.event("start", name, span)
        self._spans[name] = span
        self._again.pop(name, None)
        self._ending.discard(name)
        command = self._bootstrap(name) if name in BOOTSTRAPS else self._server(name, span)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT), "HIVEMIND_COLORS": "0"}
        recipe = Recipe(name=name, command=command, stage=Stage.SERVER, env=env, cwd=PROJECT, grace_s=GRACE_S, essential=False)
        self._running[name] = self._supervisor.start(recipe)

    def _bootstrap(self, name: str) -> list[str]:
        others = [address for known, address in self.addresses.items() if known != name and known in self._said]
        listen = f"/ip4/127.0.0.1/tcp/{self._ports[name]}"
        return [*SEPAL, "bootstrap", "--host-maddrs", listen, *self._common(name), *_peers(others)]

    def _server(self, name: str, span: tuple[int, int] | None) -> list[str]:
        where = ["--block-indices", f"{span[0]}:{span[1]}"] if span else ["--num-blocks", "2"]
        free = ["--confirm", str(CONFIRM_S), "--min-dwell", str(DWELL_S)] if name in FREE else []
        return [
            *(*SEPAL, "serve", str(self._model), "--host-maddrs", "/ip4/127.0.0.1/tcp/0", *self._common(name)),
            *("--public-name", name, "--update-period", str(UPDATE_PERIOD_S), "--skip-reachability-check"),
            *("--throughput", "10", "--cache-tokens", "256", "--device", "cpu", *where, *free),
            *_peers(list(self.addresses.values())),
        ]

    def _common(self, name: str) -> list[str]:
        identity, ready = self._folder.path / f"{name}.id", self._folder.ready_file(name)
        return ["--identity-path", str(identity), "--ready-file", str(ready), "--no-nat-port-map", "--no-relay"]

    def _kill(self, name: str, child: Child) -> None:
        """The process itself; its leash then ends what it leaves behind, and itself."""
        self._lines.event("kill", name)
        self._ending.add(name)
        for pid in kernel.descendants(child.process.pid):
            kernel.send(pid, signal.SIGKILL)

    def _stop(self, name: str, child: Child) -> None:
        self._lines.event("stop", name)
        self._ending.add(name)
        child.ask_to_stop()

    def _freeze(self, name: str, child: Child) -> None:
        self._lines.event("freeze", name)
        self._frozen[name] = kernel.descendants(child.process.pid)
        for pid in self._frozen[name]:
            kernel.send(pid, signal.SIGSTOP)

    def _thaw(self, name: str, _: Child | None = None) -> None:
        self._lines.event("thaw", name)
        for pid in self._frozen.pop(name, ()):
            kernel.send(pid, signal.SIGCONT)


def _peers(addresses: list[str]) -> list[str]:
    return ["--initial-peers", *addresses] if addresses else []


_DONE: dict[Act, Callable[[Swarm, str, Child], None]] = {
    Act.KILL: Swarm._kill,
    Act.STOP: Swarm._stop,
    Act.FREEZE: Swarm._freeze,
    Act.THAW: Swarm._thaw,
}
