"""The threat model is a list of claims with tests: this holds the list to it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_claim_of_the_threat_model_is_a_test_and_every_threat_test_a_claim() -> None:
    rows = [line.split("|")[1] for line in (ROOT / "docs/threat-model.md").read_text().splitlines() if line.startswith("| `")]
    claims = {name for row in rows for name in re.findall(r"`([a-z0-9_]{12,})`", row)}
    assert len(claims) > 20
    places = (
        "coordinator",
        "swarm",
        "swarm/answers",
        "monitor/test_rates.py",
        "monitor/test_answers.py",
        "monitor/test_served.py",
        "monitor/test_sizes.py",
        "monitor/test_ruled_out.py",
        "monitor/test_crawl.py",
        "monitor/test_floods.py",
        "monitor/test_wanted.py",
        "blockserver/serving/test_hostile_coordinator.py",
        "blockserver/serving/test_own_balance.py",
    )
    sources = [ROOT / "tests" / name for name in places]
    files = [file for source in sources for file in (sorted(source.glob("*.py")) if source.is_dir() else [source])]
    tests = {file.name: set(re.findall(r"^(?:async )?def test_(\w+)", file.read_text(), re.MULTILINE)) for file in files}
    assert claims <= set().union(*tests.values())
    assert tests["test_threats.py"] <= claims
