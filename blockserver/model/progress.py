"""How far loading has come: a callback for whoever announces it, and a bar for whoever waits for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

Progress = Callable[[int, int, float], None]
"""Called with bytes done, bytes in all (never less), and seconds since the start."""

LINE_EVERY_S = 5.0
"""Where there is no terminal, a line this often: a log is read afterwards."""


def silent(_done: int, _total: int, _seconds: float) -> None:
    """Nobody waits."""


@dataclass
class Meter:
    """Adds up what has been done. The total may grow as more becomes known, so that download and read are one figure."""

    report: Progress
    total: int = 0
    clock: Callable[[], float] = time.monotonic
    done: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def expect(self, amount: int) -> None:
        self.total += amount
        self.add(0)

    def add(self, amount: int) -> None:
        self.done += amount
        self.report(self.done, max(self.done, self.total), self.clock() - self._started)


@contextmanager
def shown(label: str, stream: TextIO | None = None) -> Iterator[Progress]:
    """A bar with bytes, rate and time left on a terminal, plain lines elsewhere; on stderr, so that stdout stays data."""
    console = Console(file=stream or sys.stderr, stderr=stream is None)
    if not console.is_terminal:
        yield _Lines(label, console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total, _seconds: bars.update(task, completed=done, total=total)


class _Lines:
    def __init__(self, label: str, console: Console) -> None:
        self._label, self._console = label, console
        self._last = 0.0

    def __call__(self, done: int, total: int, seconds: float) -> None:
        finished = done >= total
        if not total or (seconds - self._last < LINE_EVERY_S and not finished):
            return
        self._last = seconds
        rate = done / seconds if seconds > 0 else 0.0
        left = f", {(total - done) / rate:.0f} s left" if rate and not finished else ""
        text = f"{self._label}: {done / 1e6:,.1f} of {total / 1e6:,.1f} MB ({done / total:.0%}), {rate / 1e6:,.1f} MB/s{left}"
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
