"""The benchmark of many sessions runs as a whole, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import PreTrainedModel

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["after", "within"])
def test_the_benchmark_compares_the_same_tokens_and_writes_its_figures(
    ends: str, tiny: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    target = tmp_path / "figures.json"
    options = ["--servers", "1", "--sessions", "1", "3", "--tokens", "8", "--runs", "1", "--ends", ends, "--json", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sessions", str(tiny[0]), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    levels = json.loads(target.read_text())["levels"]
    assert levels["1"]["ratio"] == 1.0
    assert levels["3"]["ratio"] > 0
    assert levels["1"]["rows_per_pass"] == 1.0
    assert "rows/pass" in done.stdout
