"""The benchmark of decoding runs as a whole, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import PreTrainedModel

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_benchmark_compares_the_same_tokens_and_writes_its_figures(
    tiny: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    target = tmp_path / "figures.json"
    options = ["--servers", "2", "--tokens", "4", "--runs", "1", "--json", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.decode", str(tiny[0]), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(target.read_text())
    assert figures["ratio"] > 0
    assert figures["ratio_push"] > 0
    assert set(figures["ms_per_token"]) == {
        "local",
        "chain",
        "chain_push",
        "server_compute",
        "client_ends",
        "serialisation",
        "network",
    }
    assert "tokens/s, chain of 2 servers" in done.stdout
