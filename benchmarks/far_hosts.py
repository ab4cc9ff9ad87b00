"""Hosts that are far apart, on one machine: a network namespace each, joined by `far_router`. Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from benchmarks.far_router import address


class FarHosts:
    """`count` hosts; a packet takes `one_way_ms` from any to any other. Use it as `with`; all it started ends with it."""

    def __init__(self, count: int, one_way_ms: float) -> None:
        self._count, self._one_way_ms = count, one_way_ms
        self._processes: list[subprocess.Popen[Any]] = []
        self.method = ""

    def __enter__(self) -> FarHosts:
        try:
            # Each holds a namespace open; the processes of a host join it.
            self._holders = [self._start(["unshare", "-n", "sleep", "infinity"]) for _ in range(self._count)]
            for holder in self._holders:
                _wait_for_own_network(holder.pid)
            pids = [str(holder.pid) for holder in self._holders]
            command = ["unshare", "-n", sys.executable, "-m", "benchmarks.far_router", str(self._one_way_ms), *pids]
            router = self._start(command, stdout=subprocess.PIPE, text=True)
            assert router.stdout is not None
            said = router.stdout.readline().strip()
            if not said.startswith("ready"):
                raise SystemExit("the hosts could not be joined: are you root, and is there a /dev/net/tun?")
            self.method = said.removeprefix("ready by ")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait(10)

    def address(self, host: int) -> str:
        """Hosts count from 0."""
        return address(host + 1)

    def run(self, host: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """A process on that host. `nsenter` becomes the command, so the process's id is the command's own."""
        return self._start(["nsenter", "-t", str(self._holders[host].pid), "-n", *command], **options)

    def _start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Says nothing, unless told otherwise."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, **{**quiet, **options})
        self._processes.append(process)
        return process


def _wait_for_own_network(pid: int) -> None:
    """`unshare` has not yet left this process's network when it has just been started."""
    ours = os.readlink("/proc/self/ns/net")
    give_up = time.monotonic() + 10
    while os.readlink(f"/proc/{pid}/ns/net") == ours:
        if time.monotonic() > give_up:
            raise SystemExit("no network namespace can be made here: are you root?")
        time.sleep(0.01)
