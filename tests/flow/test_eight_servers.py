"""Three of eight servers die at once. The monitor looks twice before it believes it; then every hole gets a server, one lease
for each, and nobody moves who need not.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.blockserver.client.words import word_tokenizer
from tests.flow.conftest import RunningDemo, running_demo
from tests.tiny_models import save_tiny_model

pytestmark = pytest.mark.slow

PATIENCE_S = 240.0
LOOK_EVERY_S = 0.25
BLOCKS = 6


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[RunningDemo]:
    """Eight servers of two blocks each: every block of the six has two holders or more."""
    folder = tmp_path / "tiny"
    save_tiny_model(folder)
    word_tokenizer().save_pretrained(folder)  # for the demo's gateway
    options = ["--servers", "8", "--blocks", "2", "--crawl-interval", "3"]
    with running_demo(folder, tmp_path / "run", options) as started:
        yield started


def model_of(swarm: RunningDemo) -> dict[str, Any]:
    (only,) = httpx.get(f"{swarm.site}/api/v1/models", timeout=60).json()["items"]
    return dict(only)


def until(swarm: RunningDemo, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The model as soon as the site says this of it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        seen = model_of(swarm)
        if holds(seen):
            return seen
        time.sleep(LOOK_EVERY_S)
    raise AssertionError(f"not within {PATIENCE_S:g} s; last seen: {json.dumps(seen)[:2000]}")


def online(seen: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {s["peer_id"]: (s["start"], s["end"]) for s in seen["servers"] if s["state"] == "online"}


def victims(spans: dict[str, tuple[int, int]]) -> list[str]:
    """Three servers, all holders of some block among them, such that a hole opens."""
    holders = {block: [p for p, (start, end) in spans.items() if start <= block < end] for block in range(BLOCKS)}
    rarest = min(holders.values(), key=len)
    others = [peer for peer in sorted(spans) if peer not in rarest]
    return [*rarest, *others][:3]


def uncovered(spans: Iterable[tuple[int, int]]) -> set[int]:
    return set(range(BLOCKS)) - {block for start, end in spans for block in range(start, end)}


def test_three_of_eight_die_at_once_and_every_hole_is_filled_by_one_server_each(swarm: RunningDemo) -> None:
    before = online(until(swarm, lambda seen: len(online(seen)) == 8))
    pids = {entry["peer_id"]: entry["pid"] for entry in json.loads((swarm.run_dir / "demo.json").read_text())["servers"]}
    killed = victims(before)
    missing = uncovered(span for peer, span in before.items() if peer not in killed)
    assert len(killed) == 3 and missing
    for peer_id in killed:
        os.kill(pids[peer_id], signal.SIGKILL)

    # The hole itself may stand in one crawl only, and be gone before anybody looks: so the test waits for what stays.
    healed = until(swarm, lambda seen: not online(seen).keys() & set(killed) and not uncovered(online(seen).values()))
    assert not healed["holes"] and healed["verdict"] in ("thin", "complete")

    after = online(healed)
    repairs = [lease for lease in healed["leases"] if lease["from"] and lease["reason_code"] in ("hole", "chain")]
    moved = {peer for peer, span in after.items() if before[peer] != span}
    assert moved == {lease["peer_id"] for lease in repairs}, "nobody moved without a lease, and each lease is one move"
    assert 1 <= len(moved) <= len(missing)
    assert any("no server" in lease["reason"] for lease in repairs), "the hole was seen, and said"
    open_spans = [range(lease["start"], lease["end"]) for lease in repairs if lease["phase"] in ("offered", "accepted")]
    assert len({block for span in open_spans for block in span}) == sum(map(len, open_spans)), "no block is promised twice"
