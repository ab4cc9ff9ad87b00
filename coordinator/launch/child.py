"""One started process: its log, how it is told to stop, and what became of it. Does not decide when."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from coordinator.launch import kernel
from coordinator.launch.unprivileged import Identity
from swarm.errors import LocalError

LAST_LINES = 20


class Stage(IntEnum):
    """Stopped from the highest to the lowest, users before what they use; servers early, so that they can say OFFLINE."""

    POSTGRES = 0
    VALKEY = 1
    WEB = 2
    WORKER = 3
    BEAT = 4
    BOOTSTRAP = 5
    SERVER = 6
    GATEWAY = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to run. `essential` children take everything down with them; `finishes` marks one that is meant to end."""

    name: str
    command: Sequence[str]
    stage: Stage
    env: Mapping[str, str]
    cwd: Path
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGTERM
    """Sent by the kernel when the launcher is killed."""
    grace_s: float = 10.0
    leashed: bool = True
    essential: bool = True
    finishes: bool = False
    identity: Identity | None = None
    """The user to run as; None: ours."""


@dataclass(slots=True)
class Child:
    recipe: Recipe
    log: Path
    process: subprocess.Popen[bytes]
    mark: kernel.Mark | None = field(default=None)

    @property
    def name(self) -> str:
        return self.recipe.name

    def exit_status(self) -> int | None:
        """None while it runs. A signal is reported as 128 + its number, with and without a leash."""
        status = self.process.poll()
        return 128 - status if status is not None and status < 0 else status

    def ask_to_stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(self.recipe.stop_signal)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()

    def last_lines(self) -> list[str]:
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 64 * 1024))
            return log.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]
        return []


def start(recipe: Recipe, log: Path) -> Child:
    """A process group of its own, so that Ctrl-C in the terminal reaches the launcher alone."""
    if threading.current_thread() is not threading.main_thread():
        raise LocalError("Children are started on the main thread: they die with the thread that started them.")
    if log.exists():
        log.replace(log.with_suffix(".log.old"))
    launcher, death_signal = os.getpid(), recipe.death_signal
    who = recipe.identity
    with log.open("ab") as out:
        try:
            process = subprocess.Popen(
                _leashed(recipe),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=recipe.cwd,
                env=dict(recipe.env),
                start_new_session=True,
                user=who.uid if who else None,
                group=who.gid if who else None,
                extra_groups=[] if who else None,
                # Runs after the change of user, which would clear the setting. It only calls prctl, loaded before.
                preexec_fn=lambda: kernel.die_with_parent(death_signal, launcher),
            )
        except OSError as error:
            raise LocalError(f"Cannot start {recipe.name} ({recipe.command[0]}): {error.strerror}.") from error
    return Child(recipe, log, process, kernel.mark(process.pid))


def _leashed(recipe: Recipe) -> list[str]:
    if not recipe.leashed:
        return list(recipe.command)
    leash = [sys.executable, "-m", "coordinator.launch.leash", "--grace", str(recipe.grace_s), "--"]
    return [*leash, *recipe.command]
