"""What the three measurements share: web processes on a database of their own, a browser, percentiles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def database() -> Iterator[None]:
    """Postgres and Valkey of our own, migrated, with Django set up in this process."""
    from coordinator.launch.services import running

    with running() as (database_url, redis_url):
        os.environ |= {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
        os.environ |= {"DJANGO_SETTINGS_MODULE": "coordinator.settings"}
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        yield


@contextmanager
def web() -> Iterator[tuple[str, int]]:
    """(address, pid) of one web process that answers."""
    command = [sys.executable, "-m", "coordinator.web", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = (re.search(r"running on (http://127\.0\.0\.1:\d+)", line) for line in process.stderr)
            listening = next(found for found in said if found)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield listening[1], process.pid
        finally:
            process.terminate()


@contextmanager
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        # Beside Playwright's loop Django would refuse database calls, though nothing here is async.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def resident_bytes(pid: int) -> int:
    return int(next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)) * 1024


def percentile(values: Sequence[float], share: float) -> float:
    """By the nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]
