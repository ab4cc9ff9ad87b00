"""The demo's life with stand-ins for site and servers, and real Postgres and Valkey: start, story, kill, end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.launch import kernel, ports
from coordinator.launch.run_folder import PROJECT
from tests.launch.conftest import LIMIT_S, Launcher, Start, wait_gone

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, str(PROJECT / "tests/launch/stand_ins.py"), "launch"]


@pytest.fixture
def model(run_dir: Path) -> Path:
    folder = run_dir / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def start_demo(start: Start, model: Path) -> Launcher:
    words = ["demo", "--servers", "3", "--model", str(model), "--port", str(ports.free_port())]
    return start(*words, program=PROGRAM, env={"PYTHONPATH": str(PROJECT)})


def state(run_dir: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run_dir / "demo.json").read_text())
    return read


def test_it_starts_tells_what_happens_and_leaves_nothing(start: Start, model: Path, run_dir: Path) -> None:
    launcher = start_demo(start, model)
    launcher.line("server-1 │ INFO I chose (0, 12)")
    launcher.line("  Sepal is at http://127.0.0.1:")
    shown = state(run_dir)
    assert [(s["name"], s["span"]) for s in shown["servers"]] == [
        ("server-1", [0, 12]),
        ("server-2", [12, 24]),
        ("server-3", [0, 12]),
    ]
    assert shown["launcher_pid"] == launcher.process.pid
    assert shown["bootstrap"].endswith("/p2p/QmBootstrap")
    said = launcher.line("  The gateway answers OpenAI's interface at ")
    assert said == f"{shown['gateway']}/v1:"
    launcher.line(f"    curl {shown['gateway']}/v1/chat/completions ")
    assert all(kernel.mark(server["pid"]) for server in shown["servers"])
    wait_for_story(launcher, "✓ runs")

    children, told = launcher.children(), len(launcher.lines)
    command = [sys.executable, "-m", "coordinator.launch", "kill", "--run-dir", str(run_dir)]
    killed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT).stdout
    assert killed.startswith("Killed server-2 ")
    assert "and …rver-1 can move there" in killed
    wait_for_story(launcher, "✕ server-2 (…rver-2) was killed", told)
    wait_for_story(launcher, "✕ cannot run: blocks 12–23 have no server", told)
    assert [server["name"] for server in state(run_dir)["servers"]] == ["server-1", "server-3"]

    assert launcher.stop() == 0
    assert not any(kernel.is_running(known) for known in children)
    assert not (run_dir / "demo.json").exists()
    order = (run_dir / "order").read_text().split()
    assert order[0] == "gateway"
    assert sorted(order[1:3]) == ["server-1", "server-3"]
    assert order[3:5] == ["bootstrap", "beat"]
    assert sorted(order[5:7]) == ["crawl", "worker"]
    assert order[7:] == ["web"]
    assert not any("DEBUG" in line for line in launcher.lines)


def test_twice_in_a_row_also_after_kill_9_of_the_launcher(start: Start, model: Path, run_dir: Path) -> None:
    first = start_demo(start, model)
    first.line("  Sepal is at ")
    children = first.children()
    assert len(children) > 20
    first.process.kill()
    second = start_demo(start, model)
    second.line("  Sepal is at ")
    wait_gone(children)
    assert second.stop(signal.SIGTERM) == 0
    assert not any(kernel.is_running(known) for known in second.seen)


def test_ctrl_c_during_the_start_leaves_nothing(start: Start, model: Path) -> None:
    launcher = start_demo(start, model)
    launcher.line("server-1 │ ")
    assert launcher.stop() == 0
    assert not any(kernel.is_running(known) for known in launcher.seen)


def test_a_server_that_cannot_start_ends_the_demo_with_its_words(start: Start, model: Path) -> None:
    launcher = start_demo(start, model)
    launcher.line("The site answers on ")
    (model / "config.json").unlink()
    model.rmdir()
    launcher.line("  there is no model folder ")
    launcher.line("server-")
    assert launcher.process.wait(LIMIT_S) == 1


def test_a_web_process_that_dies_is_started_again_and_nothing_is_left(start: Start, model: Path) -> None:
    launcher = start_demo(start, model)
    launcher.line("  Sepal is at ")
    web = next(known for known in launcher.children() if "web" in known.command and "--grace" not in known.command)
    kernel.send(web.pid, signal.SIGKILL)
    launcher.line("web ended with exit status 137; it is started again.")
    wait_gone([web])
    assert launcher.stop() == 0
    wait_gone(launcher.seen)


def test_a_gateway_that_dies_is_started_again(start: Start, model: Path) -> None:
    launcher = start_demo(start, model)
    launcher.line("  Sepal is at ")
    gateway = next(known for known in launcher.children() if "gateway" in known.command and "--grace" not in known.command)
    kernel.send(gateway.pid, signal.SIGKILL)
    launcher.line("gateway ended with exit status 137; it is started again.")
    wait_gone([gateway])
    assert launcher.stop() == 0


def wait_for_story(launcher: Launcher, words: str, after: int = 0) -> None:
    """Told already since line `after`, or to be told yet: the site is looked at once a second."""
    while not any(words in line for line in launcher.lines[after:]):
        launcher.line("")
