"""A run folder that the services' user can enter, launchers as real processes, and a wait for processes to end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from coordinator.launch import kernel
from coordinator.launch.run_folder import PROJECT

LIMIT_S = 120.0
"""Only who fails waits so long."""


@pytest.fixture
def run_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sepal-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def wait_gone(marks: Sequence[kernel.Mark], limit_s: float = LIMIT_S) -> None:
    """By pidfd: the kernel says when each process has ended."""
    deadline = time.monotonic() + limit_s
    for known in marks:
        try:
            descriptor = os.pidfd_open(known.pid)
        except ProcessLookupError:
            continue
        try:
            if kernel.is_running(known):
                ended = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
                assert ended, f"still running: {known}"
        finally:
            os.close(descriptor)


class Launcher:
    """A launcher process whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.seen: list[kernel.Mark] = []
        self._rest = b""

    def line(self, start: str, limit_s: float = LIMIT_S) -> str:
        """The rest of the next line that starts like this."""
        deadline = time.monotonic() + limit_s
        while (text := self._next_line(deadline)) is not None:
            self.lines.append(text)
            if text.startswith(start):
                return text[len(start) :]
        raise AssertionError(f"no line {start!r} in {self.lines}")

    def _next_line(self, deadline: float) -> str | None:
        """None at the end of the output, and at the deadline."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            fresh = os.read(self.process.stdout.fileno(), 65536)
            if not fresh:
                return None
            self._rest += fresh
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def children(self) -> list[kernel.Mark]:
        marks = [kernel.mark(pid) for pid in kernel.descendants(self.process.pid)]
        self.seen += [known for known in marks if known]
        return [known for known in marks if known]

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.children()
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


Start = Callable[..., Launcher]


@pytest.fixture
def start(run_dir: Path) -> Iterator[Start]:
    started: list[Launcher] = []

    def launch(*words: str, env: Mapping[str, str] | None = None, program: Sequence[str] | None = None) -> Launcher:
        command = [*(program or [sys.executable, "-m", "coordinator.launch"]), *words, "--run-dir", str(run_dir)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=PROJECT,
            env={**clean_environment(), **(env or {})},
        )
        started.append(Launcher(process))
        return started[-1]

    yield launch
    for launcher in started:
        if launcher.process.poll() is None:
            launcher.children()
            launcher.process.kill()
        launcher.process.wait(LIMIT_S)
        assert launcher.process.stdout is not None
        launcher.process.stdout.close()
        wait_gone(launcher.seen)


def clean_environment() -> dict[str, str]:
    """Without what the test session's own services put there."""
    return {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL", "PG_BIN", "HOME")}
