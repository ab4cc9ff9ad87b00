"""From a server's end to the hole on an open page: a whole swarm, real processes, default intervals.

One model of as many blocks as there are servers, each block held by one server alone, so that each end is a hole of its own.
Ends overlap; so few at a time that they never look like a mass loss.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.live.site import ROOT, chromium, percentile

SPARE = 14
"""Servers that stay: six may end between two crawls, and half of all at once is held back as unlikely."""
READY_S = 900.0
SEEN_S = 240.0
KINDS = {"SIGTERM": signal.SIGTERM, "kill -9": signal.SIGKILL}
TARGETS_S = {"SIGTERM": 35.0, "kill -9": 90.0}
WATCH = """window.holes = {}; addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
  for (const cell of document.querySelectorAll(".cell.n0")) window.holes[cell.id] ??= Date.now();
}).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ["class"]}));"""


def measure(runs: int, gap_s: float, interval_s: float) -> dict[str, Any]:
    count = 2 * runs + SPARE
    with tempfile.TemporaryDirectory(prefix="sepal-live-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        model = _model(folder / "many-tiny-blocks", count)
        with _swarm(folder, model, count, interval_s) as (address, pids), chromium() as browser:
            page = browser.new_context(base_url=address).new_page()
            page.add_init_script(WATCH)
            page.goto(f"/m/{model.name}")
            page.locator("#live-note", has_text="Live").wait_for()
            page.locator(".cell.n0").first.wait_for(state="detached", timeout=SEEN_S * 1000)
            page.evaluate("window.holes = {}")
            ended = _end(pids, runs, gap_s, page)
            page.wait_for_function(
                "(count) => Object.keys(window.holes).length >= count", arg=len(ended), timeout=SEEN_S * 1000
            )
            holes = page.evaluate("window.holes")
    return _figures(ended, holes)


def _end(pids: list[int], runs: int, gap_s: float, page: Any) -> dict[int, tuple[str, float]]:
    """By block: how its server ended, and when. Turns mix both kinds and do not beat with the crawls."""
    turns = [kind for kind in KINDS for _ in range(runs)]
    random.Random(1).shuffle(turns)
    ended: dict[int, tuple[str, float]] = {}
    for block, kind in enumerate(turns):
        ended[block] = (kind, time.time())
        os.kill(pids[block], KINDS[kind])
        page.wait_for_timeout(1000 * gap_s * random.Random(block).uniform(0.5, 1.5))
    return ended


def _figures(ended: dict[int, tuple[str, float]], holes: dict[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, target in TARGETS_S.items():
        delays = [holes[f"b{block}"] / 1000 - at for block, (how, at) in ended.items() if how == kind]
        found |= {
            f"{kind}: runs": len(delays),
            f"{kind}: median s": percentile(delays, 0.5),
            f"{kind}: p95 s": percentile(delays, 0.95),
            f"{kind}: slowest s": max(delays),
            f"{kind}: target s": target,
            f"{kind}: all s": sorted(delays),
        }
    return found


def _model(folder: Path, blocks: int) -> Path:
    """A checkpoint of so many blocks of a few thousand weights each."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from tests.tiny_models import _COMMON

    config = AutoConfig.for_model(
        "llama", **{**_COMMON, "num_hidden_layers": blocks, "hidden_size": 16, "intermediate_size": 16}
    )
    model: Any = AutoModelForCausalLM
    model.from_config(config).save_pretrained(folder)
    return folder


@contextmanager
def _swarm(folder: Path, model: Path, count: int, interval_s: float) -> Iterator[tuple[str, list[int]]]:
    """(the site's address, the servers' process ids by block), when every block is held."""
    from coordinator.launch import commands
    from coordinator.launch.ports import LOOPBACK, free_port
    from coordinator.launch.run_folder import locked
    from coordinator.launch.services import start_services
    from coordinator.launch.site import start_site
    from coordinator.launch.supervisor import supervising
    from coordinator.launch.swarm import bootstrap_address, start_bootstraps

    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "HIVEMIND_COLORS": "0"}
    with locked(folder / "run") as run, supervising(run) as supervisor:
        urls = start_services(supervisor, run, os.environ, throwaway=True)
        (first,) = start_bootstraps(supervisor, run, env, 1)
        boot = bootstrap_address(supervisor, run, first)
        port = free_port()
        site = commands.SiteEnvironment(
            database_url=urls.database,
            redis_url=urls.redis,
            secret_key="benchmark",
            url=f"http://{LOOPBACK}:{port}",
            swarm="live",
            initial_peers=boot,
            crawl_interval_s=interval_s,
        )
        command = [sys.executable, "-m", "benchmarks.live.forks", str(model), str(count), boot, str(folder)]
        with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as forks:
            try:
                assert forks.stdout is not None
                pids = json.loads(forks.stdout.readline())
                start_site(supervisor, run, {**env, **site.variables()}, port)
                yield f"http://{LOOPBACK}:{port}", pids
            finally:
                assert forks.stdin is not None
                forks.stdin.close()
                forks.wait(60)
