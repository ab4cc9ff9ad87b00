"""The web process as it is run, on a free port and the test's own database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).resolve().parents[1]
STOPS_WITHIN_S = 60.0
"""Twelve times what the launcher gives it: a busy machine is slow."""


@dataclass
class Site:
    process: subprocess.Popen[str]
    own: dict[str, str]
    """What differs in its environment."""
    said: list[str] = field(default_factory=list)
    """Its log, line by line; whole once `stop` has returned."""
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        """For the line that it writes when it listens. What comes later is read too: a full pipe would stop it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if listening := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(listening[1])
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
                return
        raise AssertionError("the web process did not start:\n" + "".join(self.said))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if self.port:
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            sys.stderr.write(line)


@contextmanager
def site_process(**more: str) -> Iterator[Site]:
    own = {"DATABASE_URL": database_url(), "SEPAL_CRAWL_INTERVAL_S": "30", "PYTHONUNBUFFERED": "1", **more}
    command = [sys.executable, "-m", "coordinator.web", "--port", "0"]
    env = {**os.environ, **own}
    with subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        site = Site(process, own)
        try:
            site.wait()
            yield site
        finally:
            site.stop()


@contextmanager
def running_site(**more: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(address, what differs in its environment)."""
    with site_process(**more) as site:
        yield site.address, site.own


def database_url() -> str:
    given = connection.settings_dict
    user = quote(f"{given['USER']}:{given['PASSWORD']}" if given["PASSWORD"] else given["USER"], safe=":")
    return f"postgres://{user}@{given['HOST']}:{given['PORT']}/{quote(given['NAME'])}"
