"""The swarm in Statuspage's words: what its readers show, and what they must never conclude from our not seeing anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from monitor.store import store
from swarm.snapshot import Model
from tests.monitor.api.conftest import broken, failure, whole
from tests.monitor.seeding import NOW, online, seed
from tests.swarms import model

pytestmark = pytest.mark.usefixtures("db", "clock")

THIN = replace(model(2, online("a", 0, 2)), prefix="thin-hf")
UNREAD = replace(model(2, online("a", 0, 1), online("b", 0, 1), unread=frozenset({1})), prefix="unread-hf")


def told(client: Client, path: str = "status") -> Any:
    response = client.get(f"/api/v2/{path}.json")
    assert response.status_code == 200
    return response.json()


@pytest.mark.parametrize(
    ("models", "indicator", "begins"),
    [
        ((whole(),), "none", "All models run"),
        ((whole(), THIN), "minor", "All models run, 1 of 2"),
        ((whole(), broken()), "major", "1 of 2 models cannot run"),
        ((broken(),), "critical", "1 of 1 models cannot run"),
        ((whole(), UNREAD), "minor", "Unknown: 1 of 2"),
        ((), "critical", "No model is announced"),
    ],
)
def test_one_word_for_a_swarm(client: Client, models: tuple[Model, ...], indicator: str, begins: str) -> None:
    seed(*models)
    status = told(client)["status"]
    assert status["indicator"] == indicator and status["description"].startswith(begins)
    assert told(client, "summary")["status"] == status


def test_models_are_components(client: Client) -> None:
    seed(whole(), broken(), THIN, UNREAD)
    components = told(client, "summary")["components"]
    assert {one["name"]: one["status"] for one in components} == {
        "broken-hf": "major_outage",
        "unread-hf": "under_maintenance",
        "thin-hf": "degraded_performance",
        "tiny-hf": "operational",
    }
    assert [one["position"] for one in components] == [1, 2, 3, 4]
    assert len({one["id"] for one in components}) == 4


def test_who_cannot_see_says_neither_up_nor_down(client: Client, clock: list[float]) -> None:
    seed(whole(), broken())
    store(failure(NOW + 30))
    clock[0] = NOW + 420
    summary = told(client, "summary")
    assert (summary["status"]["indicator"], summary["status"]["description"]) == ("minor", "Unknown: last seen 7 min ago")
    assert {one["status"] for one in summary["components"]} == {"under_maintenance"}
    assert all(one["description"].startswith("unknown — ") for one in summary["components"])


def test_who_has_never_seen_anything_says_so(client: Client) -> None:
    summary = told(client, "summary")
    assert summary["status"] == {"indicator": "minor", "description": "Unknown: the swarm has not been seen yet"}
    assert summary["components"] == [] and summary["page"]["updated_at"] is None


def test_open_incidents_name_their_model(client: Client, site: None) -> None:
    (incident,) = told(client, "summary")["incidents"]
    assert incident["name"] == "broken-hf: blocks 3–6 have no server" and incident["impact"] == "major"
    assert [one["name"] for one in incident["components"]] == ["broken-hf"]
    assert incident["incident_updates"][0]["body"].startswith("The model cannot run.")
    seed(whole(), replace(model(8, *(online(n, 0, 8) for n in "ab")), prefix="broken-hf"), at=NOW + 30)
    assert told(client, "summary")["incidents"] == []
