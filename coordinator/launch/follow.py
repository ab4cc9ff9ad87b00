"""Follows a growing log, line by line. Knows bytes and lines; which lines matter is the caller's."""

from __future__ import annotations

from pathlib import Path


class Follower:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> list[str]:
        """Whole lines since the last call. A carriage return ends one too: progress bars use it."""
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                fresh = log.read()
        except FileNotFoundError:
            return []
        self._offset += len(fresh)
        *whole, self._rest = (self._rest + fresh).replace(b"\r", b"\n").split(b"\n")
        return [line.decode("utf-8", "replace").rstrip() for line in whole if line.strip()]
