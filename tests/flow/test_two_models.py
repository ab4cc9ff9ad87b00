"""Two models in one swarm. The holders of one die; its own servers cannot help, for it has none left. One server of the other,
which can be spared there and whose operator offers both, changes its model; and the model that it leaves never has a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from blockserver.client.chat import ChatConfig, ask
from blockserver.client.sampling import Sampling
from coordinator.launch.swarm import sepal_program
from tests.blockserver.client.words import word_tokenizer
from tests.flow.conftest import ROOT, RunningDemo, running_demo
from tests.tiny_models import BLOCKS, save_tiny_model

pytestmark = pytest.mark.slow

PATIENCE_S = 240.0
LOOK_EVERY_S = 0.25
QUESTION = "red green blue"
WHOLE = ("thin", "complete")


@dataclass
class Swarm:
    """The `spare` servers of `rich`, by peer id, offer `lost` too."""

    demo: RunningDemo
    rich: Path
    lost: Path
    spare: list[str]

    def models(self) -> dict[str, dict[str, Any]]:
        items = httpx.get(f"{self.demo.site}/api/v1/models", timeout=60).json()["items"]
        return {item["prefix"]: item for item in items}

    def until(self, holds: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
        """The models as soon as the site says this of them. At every look the rich one is whole, or nothing is said of it:
        the loss of all servers of a model at once is looked at twice before it is believed."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            seen = self.models()
            if self.spare:
                rich = seen[self.rich.name]
                assert not rich["holes"] and (rich["verdict"] == "unknown" if rich["stale"] else rich["verdict"] in WHOLE), rich
            if holds(seen):
                return seen
            time.sleep(LOOK_EVERY_S)
        raise AssertionError(f"not within {PATIENCE_S:g} s; last seen: {json.dumps(seen)[:3000]}")

    def chat(self, model: Path) -> str:
        config = ChatConfig(model, (self.demo.bootstrap,), sampling=Sampling(max_new_tokens=8))
        return asyncio.run(ask(config, QUESTION, lambda text: None)).text


def online(model: dict[str, Any]) -> set[str]:
    return {server["peer_id"] for server in model["servers"] if server["state"] == "online"}


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    """The demo serves the model that will be lost, twice. What has stayed longer is surer to stay: so those who may choose
    find the other one, which comes later, in the greater need, and settle there."""
    folders = []
    for name, family in (("tiny-a", "llama"), ("tiny-b", "qwen3")):
        save_tiny_model(tmp_path / name, family)
        word_tokenizer().save_pretrained(tmp_path / name)
        folders.append(tmp_path / name)
    rich, lost = folders
    options = ["--servers", "2", "--blocks", str(BLOCKS), "--crawl-interval", "3"]
    with running_demo(lost, tmp_path / "run", options) as demo, stopping(tmp_path) as started:
        made = Swarm(demo, rich, lost, [])
        for index in range(3):
            also = ["--also", str(lost)] if index else []
            peer_id = start_server(demo, tmp_path, f"a{index}", rich, started, *also)
            if also:
                made.spare.append(peer_id)
            made.until(lambda seen, peer=peer_id: rich.name in seen and peer in online(seen[rich.name]))  # type: ignore[misc]
        yield made


@contextlib.contextmanager
def stopping(folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """All at once at the end: each takes seconds to leave in order."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(120)
        for log in sorted(folder.glob("*.log")):
            sys.stderr.write(f"{log.name}\n{log.read_text()}")


def start_server(
    demo: RunningDemo, folder: Path, name: str, model: Path, started: list[subprocess.Popen[bytes]], *more: str
) -> str:
    """One that is online, with the whole model: its peer id."""
    ready = folder / f"{name}.json"
    command = [
        *(sepal_program(), "serve", str(model), "--initial-peers", demo.bootstrap, "--coordinator", demo.site),
        *("--num-blocks", str(BLOCKS), "--host-maddrs", "/ip4/127.0.0.1/tcp/0", "--no-nat-port-map", "--no-relay"),
        *("--identity-path", str(folder / f"{name}.id"), "--ready-file", str(ready), "--public-name", name),
        *("--hint-interval", "2", "--update-period", "20", *more),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT)
    started.append(process)
    deadline = time.monotonic() + PATIENCE_S
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < deadline, (folder / f"{name}.log").read_text()
        time.sleep(LOOK_EVERY_S)
    return str(json.loads(ready.read_text())["peer_id"])


def test_one_spare_server_changes_to_the_model_that_lost_its_holders(swarm: Swarm) -> None:
    rich, lost = swarm.rich.name, swarm.lost.name
    before = {model.name: swarm.chat(model) for model in (swarm.rich, swarm.lost)}
    killed = json.loads((swarm.demo.run_dir / "demo.json").read_text())["servers"]
    for entry in killed:
        os.kill(entry["pid"], signal.SIGKILL)
    # The hole itself may stand in one crawl only, and be gone before anybody looks: so the test waits for what stays.
    dead = {entry["peer_id"] for entry in killed}
    seen = swarm.until(lambda seen: seen[lost]["verdict"] in WHOLE and not online(seen[lost]) & dead)
    assert not seen[lost]["holes"]

    (mover,) = online(seen[lost])
    assert mover in swarm.spare, "whose operator offers that model"
    assert online(seen[rich]) >= {*swarm.spare} - {mover}, "the other one stays"
    (lease,) = [lease for lease in seen[lost]["leases"] if lease["from"]]
    assert (lease["peer_id"], lease["from_model"], lease["model"]) == (mover, rich, lost)
    assert f"blocks 0–{BLOCKS - 1} have no server" in lease["reason"]
    assert {model.name: swarm.chat(model) for model in (swarm.rich, swarm.lost)} == before
    swarm.until(lambda seen: mover not in online(seen[rich]))
    told = swarm.demo.run_dir.parent / f"a{swarm.spare.index(mover) + 1}.json"
    ready = json.loads(told.read_text())
    assert (ready["model"], ready["span"]) == (lost, [0, BLOCKS])
