"""Starts children, waits for them, and stops them in order whatever happens.

It knows that they are processes with logs; it does not know what they do. Everything runs on the main thread: the wait
for anything polls at most ten times a second, notices a child that ended too early, and a request to stop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from coordinator.launch import child, kernel
from coordinator.launch.child import Child, Recipe
from coordinator.launch.run_folder import RunFolder, read_json, write_json
from coordinator.launch.terminal import say
from swarm.errors import LocalError

POLL_S = 0.1
# What an earlier launcher left is ending by itself: a leash takes 3 s, Postgres writes its checkpoint.
LEFTOVER_LIMIT_S = 20.0
# Over the grace that a leash gives; then the leash itself is killed.
LEASH_SLACK_S = 5.0

# A database that was killed needs a moment until the kernel has let go of its memory.
REVIVE_AFTER_S = 2.0
# What dies more often than this within a minute will not live: its log says why.
REVIVALS, REVIVE_WITHIN_S = 5, 60.0

T = TypeVar("T")


class StopRequested(Exception):
    """Ctrl-C, SIGTERM, or the terminal was closed."""


class ChildFailed(LocalError):
    """A child ended too early or was not ready in time; carries the end of its log."""

    def __init__(self, message: str, failed: Child) -> None:
        super().__init__(message)
        self.last_lines = failed.last_lines()
        self.log = failed.log


class Supervisor:
    def __init__(self, folder: RunFolder, *, sole_purpose: bool = False) -> None:
        """`sole_purpose`: this process has no other children than these, so that every descendant may be ended."""
        self.folder = folder
        self.sole_purpose = sole_purpose
        self.children: list[Child] = []
        self._stop_requests = 0
        self._deaths: dict[str, list[float]] = {}

    def request_stop(self, *_: object) -> None:
        """A signal handler. The first request stops in order, the second at once."""
        self._stop_requests += 1

    def start(self, recipe: Recipe) -> Child:
        self.check()
        started = child.start(recipe, self.folder.logs / f"{recipe.name}.log")
        self.children.append(started)
        self._record()
        return started

    def run(self, recipe: Recipe, limit_s: float, each_poll: Callable[[], None] = lambda: None) -> None:
        """Runs a command that is meant to end, and end well."""
        started = self.start(recipe)
        status = self.wait(f"{recipe.name} to finish", started.exit_status, limit_s, started, each_poll)
        self.forget(started)
        if status != 0:
            raise ChildFailed(f"{recipe.name} failed with exit status {status}.", started)

    def wait(
        self,
        what: str,
        check: Callable[[], T | None],
        limit_s: float,
        for_child: Child | None = None,
        each_poll: Callable[[], None] = lambda: None,
    ) -> T:
        """The first answer of `check` that is not None."""
        deadline = time.monotonic() + limit_s
        while True:
            self.check()
            each_poll()
            answer = check()
            if answer is not None:
                return answer
            if for_child is not None and not for_child.recipe.finishes:
                _fail_if_ended(for_child)
            if time.monotonic() >= deadline:
                message = f"Waited {limit_s:.0f} s for {what}, in vain."
                raise ChildFailed(message, for_child) if for_child else LocalError(message)
            time.sleep(POLL_S)

    def stay(self, each_poll: Callable[[], None] = lambda: None) -> None:
        """Until somebody asks to stop. An essential child that ends is started again, unless it will not stay."""
        while True:
            self._check_requests()
            self._revive()
            each_poll()
            time.sleep(POLL_S)

    def _revive(self) -> None:
        for place, ended in enumerate(self.children):
            status = ended.exit_status()
            if status is None or not ended.recipe.essential or ended.recipe.finishes:
                continue
            now = time.monotonic()
            deaths = [at for at in self._deaths.get(ended.name, []) if at > now - REVIVE_WITHIN_S]
            if len(deaths) >= REVIVALS:
                _fail_if_ended(ended)
            if deaths and now < deaths[-1] + REVIVE_AFTER_S:
                continue
            self._deaths[ended.name] = [*deaths, now]
            say(f"{ended.name} ended with exit status {status}; it is started again.")
            self.children[place] = child.start(ended.recipe, ended.log)
            self._record()

    def check(self) -> None:
        """Raises where the launcher cannot or should not go on."""
        self._check_requests()
        for running in self.children:
            if running.recipe.essential and not running.recipe.finishes:
                _fail_if_ended(running)

    def _check_requests(self) -> None:
        if self._stop_requests:
            raise StopRequested

    def forget(self, ended: Child) -> None:
        self.children.remove(ended)
        self._record()

    def stop_all(self) -> None:
        """Stage by stage; afterwards no descendant of ours is left."""
        for stage in sorted({running.recipe.stage for running in self.children}, reverse=True):
            self._stop_stage([running for running in self.children if running.recipe.stage is stage])
        for pid in kernel.descendants(os.getpid()) if self.sole_purpose else ():
            # Adopted from a leash that was itself killed.
            kernel.send(pid, signal.SIGKILL)
        self.children.clear()
        self.folder.processes.unlink(missing_ok=True)

    def _stop_stage(self, stage: list[Child]) -> None:
        for running in stage:
            running.ask_to_stop()
        hurried = False
        limit_s = max(running.recipe.grace_s + LEASH_SLACK_S for running in stage)
        deadline = time.monotonic() + limit_s
        while any(running.exit_status() is None for running in stage):
            if self._stop_requests > 1 and not hurried:
                hurried, deadline = True, min(deadline, time.monotonic() + LEASH_SLACK_S)
                for running in stage:
                    running.ask_to_stop()
            if time.monotonic() >= deadline:
                for running in stage:
                    running.kill()
            if time.monotonic() >= deadline + LEASH_SLACK_S:
                return  # Even SIGKILL did not help: it hangs in the kernel, and nobody can wait for that.
            time.sleep(POLL_S)

    def end_leftovers(self) -> None:
        """What a launcher that was killed started is told to end by the kernel; wait for it, then insist."""
        marks = [kernel.Mark(m["pid"], m["started"], tuple(m["command"])) for m in read_json(self.folder.processes) or ()]
        left = [known for known in marks if kernel.is_running(known)]
        if left:
            say(f"Waiting for {len(left)} processes of an earlier launcher to end …")
        with contextlib.suppress(LocalError):
            self.wait("them", lambda: None if any(map(kernel.is_running, left)) else True, LEFTOVER_LIMIT_S)
        for known in filter(kernel.is_running, left):
            kernel.send(known.pid, signal.SIGKILL)
        self.folder.processes.unlink(missing_ok=True)

    def _record(self) -> None:
        marks = [(running.name, running.mark) for running in self.children if running.mark]
        write_json(
            self.folder.processes,
            [{"name": name, "pid": m.pid, "started": m.started, "command": m.command} for name, m in marks],
        )


@contextlib.contextmanager
def supervising(folder: RunFolder, *, sole_purpose: bool = False) -> Iterator[Supervisor]:
    """Children live no longer than this block. With `sole_purpose` Ctrl-C and the like become `StopRequested`."""
    supervisor = Supervisor(folder, sole_purpose=sole_purpose)
    if sole_purpose:
        kernel.adopt_orphans()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, supervisor.request_stop)
    try:
        supervisor.end_leftovers()
        yield supervisor
    finally:
        if sole_purpose and supervisor.children:
            say("Stopping …")
        supervisor.stop_all()


def _fail_if_ended(running: Child) -> None:
    status = running.exit_status()
    if status is not None:
        raise ChildFailed(f"{running.name} ended unexpectedly with exit status {status}.", running)
