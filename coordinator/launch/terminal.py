"""What people see. Knows the terminal; a terminal that went away never stops the launcher from stopping its children."""

from __future__ import annotations

import contextlib
import sys


def say(line: str = "") -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def complain(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
