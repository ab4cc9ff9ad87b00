"""What clients report of servers: kept once for each address, worth little, and never enough to demote anybody alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from monitor.published import beliefs
from monitor.queries import latest_snapshot
from monitor.rates import evidence
from monitor.rates.models import CanaryRun, Witness
from swarm.throughput import CLIENTS_LEAST
from tests.coordinator.seeding import seen
from tests.coordinator.signing import Peer
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

SWARM = model(4, *(server(name, 0, 4, throughput=100.0) for name in "abcd"))
SLOW = {"peer_id": peer_id("a"), "requests": 5, "failures": 2, "tokens_per_s": 1.0, "last_error": "no answer from 10.1.2.3"}


def report(client: Client, name: str, *servers: dict[str, Any], address: str = "127.0.0.1", **more: Any) -> Any:
    reporter = Peer(name, client)
    body = {"peer": reporter.peer_id, "model": "tiny-hf", "servers": list(servers), **more}
    return reporter.post("/report", body, REMOTE_ADDR=address)


def believed(name: str = "a") -> float | None:
    published = latest_snapshot("main")
    assert published is not None
    return beliefs(published, published.snapshot.models[0])[peer_id(name)].believed


def test_a_report_is_kept_and_shown_without_addresses(client: Client) -> None:
    seen(SWARM)
    assert report(client, "reader", SLOW).json() == {"counted": 1, "canary_counted": False, "look_at": None}
    kept = Witness.objects.get()
    assert (kept.requests, kept.failures, kept.tokens_per_s) == (5, 2, 1.0)
    assert "10.1.2.3" not in kept.last_error and kept.witness not in ("127.0.0.1", Peer("reader", client).peer_id)
    found = {item["peer_id"]: item for item in client.get("/api/v1/models/tiny-hf").json()["servers"]}
    assert found[peer_id("a")]["clients"] == {"witnesses": 1, "requests": 5, "failures": 2}
    assert found[peer_id("b")]["clients"] is None
    assert "1 client says that 2 of 5 requests failed" in client.get("/m/tiny-hf").content.decode()


def test_a_report_without_a_signature_is_refused(client: Client) -> None:
    seen(SWARM)
    body = {"peer": peer_id("x"), "model": "tiny-hf", "servers": [SLOW]}
    assert client.post("/api/v1/report", data=body, content_type="application/json").status_code == 401
    assert not Witness.objects.exists()


def test_a_client_that_lies_demotes_nobody_however_many_keys_it_makes(client: Client) -> None:
    seen(SWARM)
    for turn in range(8):
        report(client, f"liar {turn}", SLOW)
    assert Witness.objects.count() == 1, "one word for each address"
    assert believed() == 100.0


def test_several_addresses_together_halve_a_belief_at_most(client: Client) -> None:
    seen(SWARM)
    for turn in range(5):
        report(client, f"liar {turn}", SLOW, address=f"192.0.2.{turn}")
    assert believed() == 100.0 * CLIENTS_LEAST and believed("b") == 100.0


def test_nobody_s_report_on_itself_or_on_strangers_counts(client: Client) -> None:
    own = Peer("own", client).peer_id
    seen(model(4, server("a", 0, 4)))
    of_itself, of_a_stranger = {**SLOW, "peer_id": own}, {**SLOW, "peer_id": peer_id("stranger")}
    assert report(client, "own", of_itself, of_a_stranger).json()["counted"] == 0
    assert report(client, "own", SLOW, model="other").json()["counted"] == 0


def test_a_crowd_does_not_fill_the_table_and_old_words_make_room(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "WITNESSES_OF_A_SERVER", 2)
    seen(SWARM)
    counted = [report(client, "x", SLOW, address=f"192.0.2.{n}").json()["counted"] for n in (1, 2, 3, 1)]
    assert counted == [1, 1, 0, 1]
    Witness.objects.update(at=datetime.now(UTC) - evidence.COUNTS_FOR - timedelta(seconds=1))
    assert report(client, "x", SLOW, address="192.0.2.3").json()["counted"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 6},
        {"requests": 0},
        {"tokens_per_s": 0},
        {"tokens_per_s": -1.0},
        {"tokens_per_s": "1e999"},
        {"peer_id": "me"},
        {"last_error": "x" * 201},
    ],
)
def test_a_report_that_cannot_be_is_refused_in_words(client: Client, wrong: dict[str, Any]) -> None:
    seen(SWARM)
    answer = report(client, "reader", {**SLOW, **wrong})
    assert answer.status_code == 422 and answer.json()["detail"]
    assert not Witness.objects.exists()


def test_who_reports_too_often_is_told_to_wait(client: Client) -> None:
    seen(SWARM)
    codes = [report(client, "reader", SLOW).status_code for _ in range(13)]
    assert codes[:12] == [200] * 12 and codes[12] == 429


CANARY = {"outcome": "expected", "trusted_by": "majority", "servers": [peer_id("a"), peer_id("b")], "seconds": 1.5}


def test_only_the_operator_s_own_canary_is_shown(client: Client, settings: Any) -> None:
    seen(SWARM)
    settings.SEPAL_TRUSTED_REPORTERS = [Peer("canary", client).peer_id]
    assert not report(client, "stranger", canary=CANARY).json()["canary_counted"]
    assert "Canary" not in client.get("/m/tiny-hf").content.decode()
    told = report(client, "canary", SLOW, canary=CANARY).json()
    assert (told["counted"], told["canary_counted"]) == (1, True)
    assert believed() == 100.0 * CLIENTS_LEAST, "it needs no second witness, and can halve at most as well"
    page = client.get("/m/tiny-hf").content.decode()
    assert f"Canary: answered as expected 0 s ago by servers …{peer_id('a')[-6:]}, …{peer_id('b')[-6:]}" in page
    document = client.get("/api/v1/models/tiny-hf").json()["canary"]
    assert (document["outcome"], document["servers"], document["trusted_by"]) == ("expected", CANARY["servers"], "majority")


def test_a_canary_that_failed_says_why(client: Client, settings: Any) -> None:
    seen(SWARM)
    settings.SEPAL_TRUSTED_REPORTERS = [Peer("canary", client).peer_id]
    failed = {"outcome": "failed", "trusted_by": "configured", "detail": "block 3 has no server at 10.0.0.7"}
    report(client, "canary", canary=failed)
    page = client.get("/m/tiny-hf").content.decode()
    assert "Canary: no answer 0 s ago: block 3 has no server" in page and "10.0.0.7" not in page
    assert CanaryRun.objects.count() == 1


def test_an_error_that_names_missing_blocks_is_answered_with_the_page_that_shows_them(client: Client, settings: Any) -> None:
    settings.SEPAL_URL = "https://swarm.example"
    seen(model(4, server("a", 0, 2)))
    error = "MissingBlocksError: No servers holding blocks [2, 3] are online. You can check …"
    answer = report(client, "reader", {**SLOW, "last_error": error}).json()
    assert answer["look_at"] == "https://swarm.example/m/tiny-hf#b2"
    assert 'id="b2"' in client.get("/m/tiny-hf").content.decode()
