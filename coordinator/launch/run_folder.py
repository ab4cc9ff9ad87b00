"""The run folder: logs, secrets, ready files, the demo's state, and the lock that lets one launcher at a time use it.

It knows file names and how to write them safely, not what the files mean.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swarm.errors import LocalError

PROJECT = Path(__file__).resolve().parents[2]
DEFAULT_RUN_DIR = PROJECT / ".run"


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def processes(self) -> Path:
        """What this launcher started, for the next one in case this one is killed."""
        return self.path / "processes.json"

    @property
    def demo(self) -> Path:
        return self.path / "demo.json"

    def ready_file(self, name: str) -> Path:
        return self.path / "ready" / f"{name}.json"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[RunFolder]:
    """Ours alone until the block, or this process, ends: the kernel drops the lock with the process."""
    folder = RunFolder(path.absolute())
    descriptor = _open_lock(folder)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise LocalError(
                f"A launcher is already running (pid {owner}) with the run folder {folder.path}. "
                "Stop it with Ctrl-C, or use another folder with --run-dir."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield folder
    finally:
        os.close(descriptor)


def _open_lock(folder: RunFolder) -> int:
    try:
        # Others may pass through (root runs Postgres as another user), but neither list it nor read the logs.
        folder.path.mkdir(mode=0o711, parents=True, exist_ok=True)
        for below in (folder.logs, folder.path / "ready"):
            below.mkdir(mode=0o700, exist_ok=True)
        return os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LocalError(
            f"Cannot write to the run folder {folder.path}: {error.strerror}. "
            "If another user made it, remove it or choose another with --run-dir."
        ) from error


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Readers see the old text or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """None where the file is absent or not whole."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def kept_secret(path: Path) -> str:
    """The secret in the file, made on first use and readable by its owner only."""
    with contextlib.suppress(FileNotFoundError):
        kept = path.read_text(encoding="ascii").strip()
        if kept:
            return kept
    fresh = secrets.token_urlsafe(32)
    write_atomically(path, fresh + "\n", mode=0o600)
    return fresh
