"""The benchmark of the gateway runs as a whole, on a tiny model that speaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.speaking import save_speaking_model

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_benchmark_compares_the_same_chats_and_writes_its_figures(tmp_path: Path) -> None:
    model, target = tmp_path / "speaking", tmp_path / "figures.json"
    save_speaking_model(model)
    options = ["--servers", "1", "--chats", "1", "3", "--tokens", "8", "--runs", "1", "--json", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gateway", str(model), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    levels = json.loads(target.read_text())["levels"]
    assert levels["1"]["ratio"] == 1.0
    assert levels["3"]["tokens_per_s"] > 0 and levels["3"]["worst_first_token_s"] >= levels["3"]["first_token_s"] > 0
    assert "worst of all" in done.stdout
