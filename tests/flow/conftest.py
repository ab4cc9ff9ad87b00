"""The demo itself, started as a person starts it, on free ports and in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from blockserver.model.demo_model import build_demo_model
from coordinator.launch.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / ".cache" / "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class RunningDemo:
    site: str
    bootstrap: str
    gateway: str
    run_dir: Path
    output: list[str]
    """What it printed until it was ready."""

    @property
    def database_url(self) -> str:
        return str(json.loads((self.run_dir / "site-environment.json").read_text())["DATABASE_URL"])

    @property
    def launcher_pid(self) -> int:
        return int(json.loads((self.run_dir / "demo.json").read_text())["launcher_pid"])

    @contextlib.contextmanager
    def nobody_asked_to_move(self) -> Iterator[None]:
        """As if every server had asked for a pause: what is broken stays so for as long as a test looks at it."""
        pause = "UPDATE coordinator_follower SET not_before = now() + interval '1 hour', paused_at = now()"
        with psycopg.connect(self.database_url, autocommit=True) as database:
            assert database.execute(pause).rowcount
            try:
                yield
            finally:
                database.execute("UPDATE coordinator_follower SET not_before = NULL, paused_at = NULL")

    @contextlib.contextmanager
    def nothing_started_anew(self) -> Iterator[None]:
        """The launcher stands still: what has died stays dead for as long as a test looks at it."""
        os.kill(self.launcher_pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.launcher_pid, signal.SIGCONT)

    def kill_one_server(self) -> str:
        """kill -9 of the server whose loss opens a gap that the others can close; what the command says."""
        command = [sys.executable, "-m", "coordinator.launch", "kill", "--run-dir", str(self.run_dir)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180).stdout


@pytest.fixture(scope="session")
def demo_model() -> Path:
    build_demo_model(MODEL)
    return MODEL


@pytest.fixture
def demo(demo_model: Path, tmp_path: Path) -> Iterator[RunningDemo]:
    with running_demo(demo_model, tmp_path / "run", ["--crawl-interval", "5"]) as started:
        yield started


@contextlib.contextmanager
def running_demo(demo_model: Path, run_dir: Path, options: list[str]) -> Iterator[RunningDemo]:
    # Its own Postgres and Valkey, like everybody's demo, not those of the tests.
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    command = [sys.executable, "-m", "coordinator.launch", "demo", "--run-dir", str(run_dir), "--model", str(demo_model)]
    command += ["--port", str(free_port())]
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as launcher:
        try:
            output = _until_ready(launcher)
            facts = json.loads((run_dir / "demo.json").read_text())
            yield RunningDemo(facts["site"], facts["bootstrap"], facts["gateway"], run_dir, output)
        finally:
            launcher.terminate()
            assert launcher.stdout is not None
            sys.stderr.write(launcher.stdout.read())
            launcher.wait(120)


def _until_ready(launcher: subprocess.Popen[str]) -> list[str]:
    assert launcher.stdout is not None
    said: list[str] = []
    for line in launcher.stdout:
        said.append(line)
        if re.search(r"Ctrl-C stops everything", line):
            return said
    raise AssertionError("the demo did not start:\n" + "".join(said))
