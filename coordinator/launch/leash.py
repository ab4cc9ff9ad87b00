"""`python -m coordinator.launch.leash COMMAND...` runs a command and ends together with everything it started.

hivemind's p2pd outlives a killed parent by seconds and Celery's pool by more; a process that adopts orphans can end
them at once and for certain. It knows nothing of what it holds.

Rule 1: when the command ends, whatever it left behind is killed, and the leash ends with the command's exit status.
Rule 2: SIGTERM is passed on; the command then has `--grace` seconds. A second SIGTERM means now.
Rule 3: when the launcher dies the kernel sends SIGTERM, and the grace is at most `ORPHANED_GRACE_S`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from coordinator.launch import kernel

ORPHANED_GRACE_S = 3.0
LISTENED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="leash", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--grace", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("no command given")
    return hold(command, options.grace)


def hold(command: Sequence[str], grace_s: float) -> int:
    launcher = os.getppid()
    kernel.adopt_orphans()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, LISTENED)
    own_pid = os.getpid()

    def in_the_child() -> None:
        kernel.die_with_parent(signal.SIGKILL, own_pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        # preexec_fn is safe here: this process has one thread.
        child = subprocess.Popen(command, preexec_fn=in_the_child)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        return 127
    status = _until_it_ends(child.pid, grace_s, launcher)
    _end_the_rest()
    return status if status >= 0 else 128 - status


def _until_it_ends(pid: int, grace_s: float, launcher: int) -> int:
    """The command's exit status, negative for a signal."""
    deadline: float | None = None
    while True:
        status = _reap(pid)
        if status is not None:
            return status
        received = _next_signal(deadline)
        if received is None:
            kernel.send(pid, signal.SIGKILL)
            deadline = None
        elif received != signal.SIGCHLD:
            kernel.send(pid, signal.SIGTERM)
            orphaned = os.getppid() != launcher
            allowed = min(grace_s, ORPHANED_GRACE_S) if orphaned else grace_s
            deadline = time.monotonic() if deadline is not None else time.monotonic() + allowed


def _next_signal(deadline: float | None) -> int | None:
    """None when the deadline passed first."""
    if deadline is None:
        return signal.sigwait(LISTENED)
    found = signal.sigtimedwait(LISTENED, max(0.0, deadline - time.monotonic()))
    return None if found is None else found.si_signo


def _reap(pid: int) -> int | None:
    """Collects every child that ended, adopted ones too; the status of `pid` when it is among them."""
    status: int | None = None
    while True:
        try:
            ended, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if ended == 0:
            return status
        if ended == pid:
            status = os.waitstatus_to_exitcode(raw)


def _end_the_rest() -> None:
    """Loops because a process may fork while it is being killed, and orphans come to us one generation at a time."""
    while True:
        for pid in kernel.descendants(os.getpid()):
            kernel.send(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main())
