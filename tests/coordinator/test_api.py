"""Hints over HTTP: what a block server sends and reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from coordinator import followers
from coordinator.models import Lease, Phase
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.signing import Peer, signed_server
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

HOLED = model(30, signed_server("a", 0, 12), signed_server("c", 18, 30), signed_server("d", 0, 12, throughput=9.0))


@pytest.fixture
def d(client: Client) -> Peer:
    """The server that is to move; the monitor has just seen the hole, and all servers have asked for hints before."""
    for name, span in (("a", Span(0, 12)), ("c", Span(18, 30)), ("d", Span(0, 12))):
        followers.note_heartbeat(SWARM, Peer(name, client).question(span), datetime.now(UTC) - timedelta(seconds=20))
    seen(HOLED)
    return Peer("d", client)


def test_a_lease_is_offered_accepted_and_reported_on(d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    accept = d.step(lease["id"], "accept", plan_version=lease["plan_version"], current=lease["if_unchanged"])
    assert accept.json()["outcome"] == "ok"
    assert d.step(lease["id"], "progress", progress=0.5).json()["outcome"] == "ok"
    kept = Lease.objects.get()
    assert (kept.phase, kept.progress, kept.renewals) == (Phase.ACCEPTED, 0.5, 1)


def test_a_declined_lease_is_closed_with_its_reason_in_readable_words(d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    d.step(lease["id"], "decline", reason="busy\u202e\n\x00sessions")
    assert (Lease.objects.get().phase, Lease.objects.get().close_reason) == (Phase.DECLINED, "busy sessions")


def test_each_answer_brings_the_next_nonce(d: Peer) -> None:
    first = d.post("/hint", d.question(Span(0, 12)))
    assert d.post("/hint", d.question(Span(0, 12)), nonce=first["Sepal-Nonce"]).status_code == 200


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "peer"),
        ({"peer": "me", "model": "m", "num_blocks_max": 1, "num_blocks": 1}, "no peer id"),
        ({"peer": peer_id("a"), "model": "a.b", "num_blocks_max": 1, "num_blocks": 1}, "no model prefix"),
        ({"peer": peer_id("a"), "model": "m", "num_blocks_max": 0, "num_blocks": 1}, "num_blocks_max"),
        ({"peer": peer_id("a"), "model": "m", "num_blocks_max": 10**9, "num_blocks": 1}, "num_blocks_max"),
        (
            {"peer": peer_id("a"), "model": "m", "num_blocks_max": 1, "num_blocks": 1, "current": {"start": 5, "end": 3}},
            "start < end",
        ),
    ],
)
def test_a_bad_question_is_a_problem_that_says_where(client: Client, body: dict[str, Any], where: str) -> None:
    response = client.post("/api/v1/hint", data=body, content_type="application/json")
    assert response.status_code == 422
    assert response["Content-Type"] == "application/problem+json"
    assert where in json.dumps(response.json(), ensure_ascii=False)


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/nothing"])
def test_an_unknown_route_under_api_is_a_problem_and_no_page(client: Client, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")


def test_the_lease_stands_in_the_models_document_and_on_its_page(client: Client, d: Peer) -> None:
    d.ask(Span(0, 12))
    (item,) = client.get("/api/v1/models").json()["items"]
    assert item["leases"][0]["phase"] == "offered"
    assert item["leases"][0]["reason"] == "blocks 12–17 have no server"
    page = client.get("/m/tiny-hf").content.decode()
    assert "Hints given" in page
    assert d.peer_id[-6:] in page


def test_what_was_decided_stands_in_the_metrics(client: Client, d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    d.step(lease["id"], "decline", reason="pinned")
    Peer("a", client).ask(Span(0, 12))
    text = client.get("/metrics").content.decode()
    assert 'swarm_hint_decisions_total{model="tiny-hf",outcome="offered"} 2.0' in text
    assert 'swarm_hint_decisions_total{model="tiny-hf",outcome="declined"} 1.0' in text


@pytest.mark.parametrize("path", ["/hint", "/hint/nonce", "/lease/{lease_id}/accept", "/needed", "/fits", "/what-if", "/hints"])
def test_the_openapi_document_describes_it(client: Client, path: str) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert f"/api/v1{path}" in document["paths"]
