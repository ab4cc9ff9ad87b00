"""The dashboard and the alert rules that we ship name only what a scrape really holds, and the rules are well formed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from coordinator.tallies import tally
from monitor import queries
from monitor.feeds.publish import publish
from monitor.rates.models import CanaryRun
from swarm.snapshot import Dropped
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model

pytestmark = pytest.mark.django_db

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "swarm.json").read_text())

WORDS = {"time", "absent", "sum", "min", "max", "by", "rate", "histogram_quantile", "or", "and", "unless", "on", "label_values"}
"""Of PromQL, and of Grafana's queries for variables."""
TOKEN = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*|"[^"]*"|\d+(\.\d+)?|\[\d+[smhd]\]|=~|!=|==|>=|<=|[-+*/><=(){},]|\s+')
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+")


def tokens(expression: str) -> list[str]:
    """Fails on what is no PromQL token, and on brackets that do not close."""
    found, at = [], 0
    while at < len(expression):
        match = TOKEN.match(expression, at)
        assert match, f"{expression[at:]!r} cannot be read"
        found.append(match.group())
        at = match.end()
    depth = 0
    for token in found:
        depth += (token in "({") - (token in ")}")
        assert depth >= 0
    assert depth == 0, f"brackets of {expression!r}"
    return [token for token in found if not token.isspace()]


def names_and_labels(expression: str) -> tuple[set[str], set[str]]:
    """Metrics, and the labels that are asked for."""
    metrics: set[str] = set()
    labels: set[str] = set()
    inside = ""
    found = tokens(expression)
    for index, token in enumerate(found):
        if token == "{" or (token == "(" and index and found[index - 1] == "by"):
            inside = token
        elif token in ")}":
            inside = ""
        elif re.match(r"[a-zA-Z_]", token) and (inside or token not in WORDS):
            (labels if inside else metrics).add(token)
    return metrics, labels


def queries_of_dashboard() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.fixture
def scraped(client: Client, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Labels by sample name, of a swarm in which everything happens."""
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    one = online("a", 0, 2)
    seed(model(2, one), dropped=(Dropped("tiny-hf.0", "'x'", "subkey", ""),))
    tally(SWARM, "tiny-hf", "stay", datetime.now(UTC))
    CanaryRun.objects.create(swarm=SWARM, prefix="tiny-hf", at=datetime.fromtimestamp(NOW, UTC), outcome="expected")
    publish(SWARM)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").content.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


SILENT_HERE = {"swarm_model_min_cache_tokens"}
"""Only where servers say how much cache they have; `test_metrics` shows it."""


def test_every_series_of_the_dashboard_exists_with_its_labels(scraped: dict[str, set[str]]) -> None:
    for expression in queries_of_dashboard():
        metrics, labels = names_and_labels(expression)
        assert metrics - SILENT_HERE <= scraped.keys(), expression
        known = set().union(*(scraped.get(name, {"model"}) for name in metrics))
        assert labels <= known, expression


def test_every_legend_names_a_label_of_its_series(scraped: dict[str, set[str]]) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            metrics, _ = names_and_labels(target["expr"])
            known = set().union(*(scraped.get(name, {"model"}) for name in metrics))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, target


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["title"] and DASHBOARD["uid"] and DASHBOARD["schemaVersion"] >= 30
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in DASHBOARD["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    for at, (x, y, w, h) in enumerate(places):
        for other_x, other_y, other_w, other_h in places[at + 1 :]:
            assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y, "panels overlap"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([panel["targets"] for panel in DASHBOARD["panels"]])))
    assert used <= variables, "every variable is declared"


def test_the_rules_are_what_prometheus_reads_and_name_only_what_exists(scraped: dict[str, set[str]]) -> None:
    rules = [rule for group in RULES for rule in group["rules"]]
    alerts = ["SwarmGap", "SwarmOneServerBlock", "SwarmCanary", "SwarmCrawlOld", "SwarmQueueLong"]
    assert [rule["alert"] for rule in rules] == alerts
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
        assert DURATION.fullmatch(rule["for"]) and rule["labels"]["severity"] in ("critical", "warning")
        metrics, labels = names_and_labels(rule["expr"])
        assert metrics and metrics <= scraped.keys() and labels <= set().union(*(scraped[name] for name in metrics))
        for text in rule["annotations"].values():
            asked = set(re.findall(r"\$labels\.(\w+)", text))
            assert asked <= set().union(*(scraped[name] for name in metrics)), text
            assert text.count("{{") == text.count("}}")


@pytest.mark.parametrize("wrong", ["sum(a", "a) + b", "a ~ b", "rate(a[5 minutes])"])
def test_this_test_can_fail(wrong: str) -> None:
    with pytest.raises(AssertionError):
        tokens(wrong)


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert names_and_labels('max by (queue) (swarm_gone{model=~"x"}) > 5 * time()') == ({"swarm_gone"}, {"queue", "model"})
