"""Units and images of the block server: systemd accepts them, and they say what the code does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.main import get_command

from blockserver.cli import app
from blockserver.config import ServeConfig
from blockserver.serving.condition import Condition
from blockserver.serving.life import OFFLINE_TIMEOUT_S
from blockserver.serving.metrics import MetricsPage
from swarm.dht.node import STOP_TIMEOUT_S
from swarm.wire.spans import Span

PROJECT = Path(__file__).parents[2]
UNITS = sorted((PROJECT / "deploy/systemd").glob("sepal-*.service"))
HEALTHCHECK = PROJECT / "deploy/docker/healthcheck.py"


def settings(unit: str) -> dict[str, str]:
    text = (PROJECT / "deploy/systemd" / unit).read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    "unit", ["sepal-server.service", "sepal-bootstrap.service", "sepal-gateway.service", "sepal-canary.service"]
)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_finds_nothing_wrong(unit: str, tmp_path: Path) -> None:
    text = (PROJECT / "deploy/systemd" / unit).read_text()
    copy = tmp_path / unit
    copy.write_text(text.replace("/opt/sepal/.venv/bin/sepal", sys.executable))
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60)
    about_it = [line for line in (checked.stdout + checked.stderr).splitlines() if unit in line or "sepal" in line]
    assert (checked.returncode, about_it) == (0, [])


@pytest.mark.parametrize(
    ("unit", "command"),
    [("sepal-server.service", "serve"), ("sepal-bootstrap.service", "bootstrap"), ("sepal-gateway.service", "gateway")],
)
def test_a_unit_sets_only_what_its_command_knows(unit: str, command: str) -> None:
    said = settings(unit)
    assert said["ExecStart"] == f"/opt/sepal/.venv/bin/sepal {command}"
    commands = get_command(app).commands  # type: ignore[attr-defined]
    known = {parameter.envvar for parameter in commands[command].params}
    names = {word.split("=")[0] for word in said["Environment"].split()}
    assert names <= known
    assert said["Type"] == "notify"


def test_the_canarys_unit_sets_only_what_its_command_knows() -> None:
    text = (PROJECT / "deploy/systemd/sepal-canary.service").read_text()
    known = {parameter.envvar for parameter in get_command(app).commands["canary"].params}  # type: ignore[attr-defined]
    said = set(re.findall(r"SEPAL_[A-Z_]+", text))
    assert said <= known and settings("sepal-canary.service")["ExecStart"] == "/opt/sepal/.venv/bin/sepal canary"


def test_systemd_waits_longer_than_a_server_takes_to_leave() -> None:
    longest = ServeConfig(model=Path("m"), initial_peers=("x",)).drain_s + 2 * OFFLINE_TIMEOUT_S + 2 * STOP_TIMEOUT_S
    assert longest < float(settings("sepal-server.service")["TimeoutStopSec"])


@pytest.mark.parametrize(("state", "code"), [("online", 0), ("joining", 1)])
def test_a_container_is_well_when_its_server_is_online(state: str, code: int) -> None:
    now = SimpleNamespace(condition=Condition(state, "tiny", "sepal-0", "cpu", "float32", span=Span(0, 3)))
    page = MetricsPage(0, lambda: now.condition)
    try:
        port = page.url.rsplit(":", 1)[1]
        checked = subprocess.run(
            [sys.executable, str(HEALTHCHECK)], capture_output=True, text=True, env={"SEPAL_METRICS_PORT": port}
        )
    finally:
        page.close()
    assert (checked.returncode, "blocks 0–2 of tiny" in checked.stdout) == (code, True), checked


def test_without_a_port_a_running_container_is_well_and_with_a_dead_one_it_is_not() -> None:
    assert subprocess.run([sys.executable, str(HEALTHCHECK)], env={}).returncode == 0
    assert (
        subprocess.run([sys.executable, str(HEALTHCHECK)], env={"SEPAL_METRICS_PORT": "9"}, capture_output=True).returncode == 1
    )
