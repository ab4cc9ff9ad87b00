"""What Linux knows of processes: prctl, and who is who in /proc. Knows nothing of what the processes are for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Loaded at import: between fork and exec nothing may be looked up.
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(death_signal: signal.Signals, parent: int) -> None:
    """For use between fork and exec, after any change of user: the kernel clears this setting on setuid.

    The kernel sends it when the parent's forking *thread* ends, hence children are started on the main thread only.
    """
    _libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != parent:
        # The parent died before the call above could take effect.
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """From now on descendants whose parent dies become our children, not init's."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Mark:
    """One process, told apart from a later one with the same pid by its start (clock ticks since boot)."""

    pid: int
    started: int
    command: tuple[str, ...]


def mark(pid: int) -> Mark | None:
    """None where no such process runs (a zombie does not run)."""
    stat = _stat(pid)
    if stat is None or stat[0] in "ZX":
        return None
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    words = command.decode("utf-8", "replace").rstrip("\0").split("\0")
    return Mark(pid, int(stat[19]), tuple(words))


def is_running(known: Mark) -> bool:
    stat = _stat(known.pid)
    return stat is not None and stat[0] not in "ZX" and int(stat[19]) == known.started


def descendants(pid: int) -> list[int]:
    """Everything below `pid`, zombies left out, parents before their children."""
    children: dict[int, list[int]] = {}
    for candidate in _pids():
        stat = _stat(candidate)
        if stat is not None and stat[0] not in "ZX":
            children.setdefault(int(stat[1]), []).append(candidate)
    found: list[int] = []
    queue = list(children.get(pid, ()))
    while queue:
        found.append(queue.pop(0))
        queue.extend(children.get(found[-1], ()))
    return found


def send(pid: int, number: signal.Signals) -> None:
    """A process that is already gone is what the caller wanted."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _pids() -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield int(entry.name)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
