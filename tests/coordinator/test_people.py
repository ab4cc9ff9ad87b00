"""What people are shown: needed, fits, what if, hints over time and each hint explained; the same in JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from coordinator import hints
from coordinator.models import Lease, Tally
from swarm.wire.hints import LeaseStep
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db


def read(client: Client, path: str, status: int = 200, **query: Any) -> dict[str, Any]:
    response = client.get(f"/api/v1{path}", query)
    assert response.status_code == status, response.content
    document: dict[str, Any] = response.json()
    return document


def page(client: Client, path: str, status: int = 200, **query: Any) -> str:
    response = client.get(path, query)
    assert response.status_code == status
    assert "default-src 'self'" in response["Content-Security-Policy"]
    text: str = response.content.decode()
    assert "<script>" not in text and "style=" not in text
    return text


def test_most_needed_are_the_blocks_without_server_and_what_serving_them_changes(client: Client) -> None:
    seen(HOLED)
    (item,) = read(client, "/needed", model="tiny-hf", num_blocks=12)["items"]
    first = item["cards"][0]
    assert first["start"] <= 12 and first["end"] >= 18
    assert first["reason"] == "blocks 12–17 have no server"
    assert "the model runs again" in first["effect"] and "lowest redundancy 0 → 1" in first["effect"]
    assert item["cards"][1]["start"] != first["start"]


def test_what_is_promised_to_someone_needs_no_second_server(client: Client) -> None:
    holed()
    before = read(client, "/needed", num_blocks=12)["items"][0]["cards"][0]
    assert before["reason_code"] == "hole"
    assert ask("d", Span(0, 12)).lease is not None
    assert read(client, "/needed", num_blocks=12)["items"][0]["cards"][0]["reason_code"] != "hole"


def test_where_nothing_is_missing_speed_is_what_helps(client: Client) -> None:
    seen(model(4, *(server(f"s{n}", 0, 4, throughput=50.0) for n in range(6)), server("fast", 0, 2, throughput=900.0)))
    (item,) = read(client, "/needed")["items"]
    assert item["summary"] == (
        "every block has 6 or more servers; most useful now: faster servers for blocks 2–3 (slowest, 300 tok/s)"
    )


@pytest.mark.parametrize("path", ["/needed", "/fits?model=tiny-hf&memory_gb=8", "/what-if?model=tiny-hf"])
def test_a_blind_monitor_advises_nobody(client: Client, path: str) -> None:
    assert "has not seen" in read(client, path, 503)["detail"]
    seen(HOLED, ago_s=3600)
    assert "cannot see" in read(client, path, 503)["detail"]
    assert "No advice now" in page(client, "/connect") and "No advice now" in page(client, "/what-if")


def test_an_unknown_model_is_a_problem(client: Client) -> None:
    seen(HOLED)
    for path in ("/needed?model=x", "/fits?model=x&memory_gb=8", "/what-if?model=x"):
        assert "announces no model" in read(client, path, 404)["detail"]


def test_what_fits_says_how_it_was_reckoned(client: Client) -> None:
    seen(HOLED)
    unknown = read(client, "/fits", model="tiny-hf", memory_gb=8)
    assert unknown["num_blocks"] is None and "how many parameters" in unknown["words"]
    given = read(client, "/fits", model="tiny-hf", memory_gb=8, parameters_b=30, precision="int8")
    assert given["num_blocks"] == 6 and "that you gave" in given["words"]
    assert read(client, "/fits", 422, model="tiny-hf", memory_gb=-1)["status"] == 422


def test_what_if_one_leaves_and_one_comes(client: Client) -> None:
    seen(model(12, server("a", 0, 6), server("b", 6, 12), server("c", 0, 12)))
    leaves = read(client, "/what-if", model="tiny-hf", leaves=peer_id("c"))
    assert (leaves["min_redundancy_before"], leaves["min_redundancy_after"]) == (2, 1)
    both = read(client, "/what-if", model="tiny-hf", leaves=peer_id("a"), add_blocks=6)
    assert (both["start"], both["end"], both["min_redundancy_after"]) == (0, 6, 2)
    stops = read(client, "/what-if", model="tiny-hf", leaves=peer_id("a"))
    assert "lowest redundancy 2 → 1" in stops["words"]
    read(client, "/what-if", 404, model="tiny-hf", leaves=peer_id("nobody"))


def test_what_if_says_that_the_model_would_stop(client: Client) -> None:
    seen(model(12, server("a", 0, 6), server("b", 6, 12)))
    text = page(client, "/what-if", leaves=peer_id("b"))
    assert "the model stops: blocks 6–11 would have no server" in text


def test_a_hint_is_explained_by_what_it_rests_on(client: Client) -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    lease = Lease.objects.get()
    document = read(client, f"/hints/{lease.pk}")
    inputs = document["inputs"]
    assert document["peer_id"] == peer_id("d") and document["outcome"] == "open"
    assert inputs["servers"] == 3 and inputs["asked"]["current"] == [0, 12]
    assert "the model runs again" in inputs["ranking"][0]["effect"]
    assert len(inputs["ranking"]) > 1
    objections = {item["peer_id"]: item["objection"] for item in inputs["candidates"]}
    assert objections[peer_id("a")] is None
    assert "without this server blocks 18–29 have no server" in objections[peer_id("c")]
    text = page(client, f"/hints/{lease.pk}")
    for words in ("Who got it", peer_id("d"), "the model runs again", "without this server", "Served before"):
        assert words in text
    assert "Cost" not in text, "the server has not said what it costs"


def test_hints_over_time_say_what_became_of_them(client: Client) -> None:
    holed()
    ask("d", Span(0, 12))
    lease = Lease.objects.get()
    hints.accept(SWARM, lease, LeaseStep(peer=lease.peer_id), datetime.now(UTC))
    asked_on = lease.created_at.date()
    moved = server("d", lease.start, lease.end)
    seen(model(30, *(s for s in HOLED.servers if s.peer_id != moved.peer_id), moved))
    ask("a", Span(0, 12))
    document = read(client, "/hints", model="tiny-hf")
    assert document["items"][0]["outcome"] == "followed" and document["items"][0]["repaired_s"] >= 0
    Tally.objects.update(day=asked_on)  # Where midnight has passed since, the rest counts for another day.
    Lease.objects.update(closed_at=lease.created_at)
    (day,) = read(client, "/hints", model="tiny-hf")["days"]
    assert (day["offered"], day["followed"], day["ignored"]) == (1, 1, 0)
    assert day["told_to_stay"] == 1 and day["repaired_s"] is not None
    text = page(client, "/hints")
    assert "followed in" in text and f"/hints/{lease.pk}" in text


def test_pages_without_any_hint_say_so(client: Client) -> None:
    assert "None yet." in page(client, "/hints")
    assert client.get("/hints/2b1d3f8e-5f4e-4a86-9d20-0c9f5a3f9f11").status_code == 404
    read(client, "/hints/2b1d3f8e-5f4e-4a86-9d20-0c9f5a3f9f11", 404)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"memory_gb": "a lot"}, "Memory: "),
        ({"peer": "me"}, "Peer id: "),
        ({"card": "abacus"}, "Card: not in the list"),
        ({"code": "00000-00001"}, "Code: the check sum is wrong"),
        ({"model": "nothing-like-it"}, "announces no model with the prefix nothing-like-it"),
        ({"model": "<script>"}, "Model: "),
        ({"num_blocks": "0"}, "Blocks: "),
    ],
)
def test_what_cannot_be_read_in_a_form_is_said_and_the_rest_is_shown(client: Client, query: dict[str, str], words: str) -> None:
    seen(HOLED)
    text = page(client, "/connect", **query)
    assert words in text and "What do you have?" in text
