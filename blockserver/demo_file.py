"""Defaults for commands that are typed beside a running demo: its launcher writes down where everything is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

DEMO_FILE = Path(os.environ.get("SEPAL_RUN_DIR", ".run")) / "demo.json"
"""`SEPAL_RUN_DIR` names the run folder of a demo that was started with another one."""


@dataclass(frozen=True)
class RunningDemo:
    site: str
    bootstrap: str
    model: Path


def find_demo(path: Path = DEMO_FILE) -> RunningDemo | None:
    """None where no demo runs from this folder, or its file says something else than expected."""
    try:
        facts = json.loads(path.read_text())
        return RunningDemo(site=str(facts["site"]), bootstrap=str(facts["bootstrap"]), model=Path(facts["model"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
