"""Tells whoever started this process that it is ready, and with what, through a file."""

from __future__ import annotations

import json
from pathlib import Path


def write_ready_file(path: Path | None, facts: dict[str, object]) -> None:
    """Whole or not at all: whoever waits for the file may read it as soon as it is there."""
    if path is not None:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(facts))
        partial.replace(path)
