"""What each process may load: importing hivemind takes seconds and hundreds of megabytes, and brings torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "hivemind", "transformers")

WEB = """
import coordinator.asgi
from django.test import Client
answer = Client().get("/livez", headers={"host": "localhost"})
assert answer.status_code == 200, answer
"""
DEFAULT_WORKER = """
import coordinator.celery, django
django.setup()
coordinator.celery.app.loader.import_default_modules()
assert "monitor.tasks.push" in coordinator.celery.app.tasks
assert "coordinator.tasks.settle_leases" in coordinator.celery.app.tasks
"""
LAUNCHER = "import coordinator.launch.cli"
HELP = "import blockserver.cli"


@pytest.mark.parametrize(
    "started", [WEB, DEFAULT_WORKER, LAUNCHER, HELP], ids=["web", "default worker", "launcher", "sepal --help"]
)
def test_a_process_that_does_not_compute_or_dial_never_loads_torch_or_hivemind(started: str) -> None:
    program = f"{started}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"
