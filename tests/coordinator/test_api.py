"""Hints over HTTP: what a block server sends and reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from coordinator.models import Lease, Phase
from swarm.wire.spans import Span
from tests.coordinator.seeding import question
from tests.coordinator.test_hints import holed
from tests.swarms import peer_id

pytestmark = pytest.mark.django_db


def post(client: Client, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    response = client.post(f"/api/v1{path}", data=body, content_type="application/json")
    return response.status_code, response.json()


def offered(client: Client) -> dict[str, Any]:
    holed()
    status, answer = post(client, "/hint", question("d", serving=Span(0, 12)).model_dump_json())
    assert status == 200
    lease: dict[str, Any] = answer["lease"]
    return lease


def test_a_lease_is_offered_accepted_and_reported_on(client: Client) -> None:
    lease = offered(client)
    me = {"peer": peer_id("d")}
    assert post(client, f"/lease/{lease['id']}/accept", me)[1]["outcome"] == "ok"
    assert post(client, f"/lease/{lease['id']}/progress", {**me, "progress": 0.5})[1]["outcome"] == "ok"
    assert (Lease.objects.get().phase, Lease.objects.get().progress) == (Phase.ACCEPTED, 0.5)


def test_a_declined_lease_is_closed_with_its_reason(client: Client) -> None:
    lease = offered(client)
    post(client, f"/lease/{lease['id']}/decline", {"peer": peer_id("d"), "reason": "busy"})
    assert (Lease.objects.get().phase, Lease.objects.get().close_reason) == (Phase.DECLINED, "busy")


def test_nobody_takes_the_lease_of_another_peer(client: Client) -> None:
    lease = offered(client)
    status, body = post(client, f"/lease/{lease['id']}/accept", {"peer": peer_id("a")})
    assert status == 404
    assert body["detail"] == "this peer has no lease with this id"
    assert Lease.objects.get().phase == Phase.OFFERED


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "peer"),
        ({"peer": "me", "model": "m", "num_blocks_max": 1, "num_blocks": 1}, "no peer id"),
        ({"peer": peer_id("a"), "model": "a.b", "num_blocks_max": 1, "num_blocks": 1}, "no model prefix"),
        ({"peer": peer_id("a"), "model": "m", "num_blocks_max": 0, "num_blocks": 1}, "num_blocks_max"),
        ({"peer": peer_id("a"), "model": "m", "num_blocks_max": 10**9, "num_blocks": 1}, "num_blocks_max"),
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


def test_the_lease_stands_in_the_models_document_and_on_its_page(client: Client) -> None:
    offered(client)
    (item,) = client.get("/api/v1/models").json()["items"]
    assert item["leases"][0]["phase"] == "offered"
    assert item["leases"][0]["reason"] == "blocks 12–17 have no server"
    page = client.get("/m/tiny-hf").content.decode()
    assert "Hints given" in page
    assert peer_id("d")[-6:] in page


def test_the_openapi_document_describes_the_hint(client: Client) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/api/v1/hint" in document["paths"]
