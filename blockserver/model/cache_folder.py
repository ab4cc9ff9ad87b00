"""A folder of downloaded weights that stays below a limit: what was used longest ago goes first, what is in use stays.

Several processes may share it. A file in use is locked by whoever uses it (flock, which ends with the process), so that
eviction by another cannot take it away; one process at a time makes room and fills it. Knows files, not models.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swarm.errors import LocalError

WEIGHTS = "*.safetensors"
UNFINISHED = ".unfinished"
LOCK = ".lock"

MARGIN_BYTES = 256 * 1024**2
"""Left free on the disk: a full one stops more than this program."""


class Hold:
    """Files that are in use until `release`, or until the process ends."""

    def __init__(self) -> None:
        self._opened: list[int] = []

    def take(self, file: Path) -> bool:
        """Whether the file is there; if so it now stays, and counts as used just now."""
        try:
            opened = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            return False
        fcntl.flock(opened, fcntl.LOCK_SH)
        try:
            os.utime(file)
            same = os.fstat(opened).st_ino == file.stat().st_ino
        except FileNotFoundError:  # evicted between opening and locking
            same = False
        if not same:
            os.close(opened)
            return False
        self._opened.append(opened)
        return True

    def release(self) -> None:
        while self._opened:
            os.close(self._opened.pop())


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """`limit_bytes` counts weights, finished or not; None leaves the limit to the disk."""

    path: Path
    limit_bytes: int | None = None

    @contextmanager
    def filling(self) -> Iterator[None]:
        """One process at a time; others wait here."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise LocalError(f"the cache folder {self.path} cannot be written to: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def make_room(self, needed: int, spare: Iterable[Path] = ()) -> None:
        """Evicts until `needed` more bytes fit; LocalError where they cannot. To be called within `filling`."""
        spared = set(spare)
        for file in sorted(self._weights(), key=_last_used):
            if self._lacking(needed) <= 0:
                return
            if file not in spared:
                _evict(file)
        if (lacking := self._lacking(needed)) > 0:
            raise LocalError(
                f"{needed / 1e9:.1f} GB more do not fit into the cache folder {self.path}: {lacking / 1e9:.1f} GB are lacking, "
                "and the rest is in use; free disk space, raise the limit, or name another folder"
            )

    def used(self) -> int:
        return sum(_size(file) for file in self._weights())

    def _lacking(self, needed: int) -> int:
        disk = needed + MARGIN_BYTES - shutil.disk_usage(self.path).free
        return disk if self.limit_bytes is None else max(disk, self.used() + needed - self.limit_bytes)

    def _weights(self) -> list[Path]:
        return [*self.path.rglob(WEIGHTS), *self.path.rglob(WEIGHTS + UNFINISHED)]


def _evict(file: Path) -> None:
    """Unless somebody uses it."""
    try:
        opened = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlink(missing_ok=True)
    except BlockingIOError:
        return
    finally:
        os.close(opened)


def _last_used(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
