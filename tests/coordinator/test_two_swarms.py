"""Hints, leases and reads of each swarm apart: `/s/NAME/api/v1/…` means that swarm, from nonce to the end of a lease."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.test import AsyncClient, Client

from blockserver.serving.hint_client import HintClient
from coordinator import followers, tasks
from coordinator.models import Lease, Phase
from monitor import reachability
from monitor.crawl import CrawlReport
from monitor.store import store
from swarm.snapshot import Snapshot
from swarm.wire.identity import signed_base
from swarm.wire.spans import Span
from tests.coordinator.signing import HOST, Peer, fresh_nonce, signed_server, signer
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

WHOLE = model(30, *(signed_server(name, 0, 30) for name in "xy"))
HOLED = model(30, signed_server("a", 0, 12), signed_server("c", 18, 30), signed_server("d", 0, 12, throughput=9.0))


@pytest.fixture(autouse=True)
def _two_swarms(settings: Any) -> None:
    other = {"name": "lab", "label": "The lab", "initial_peers": [], "relay": False, "models": []}
    settings.SEPAL_SWARMS = [*settings.SEPAL_SWARMS[:1], other]


def look(swarm: str, what: Any) -> None:
    at = time.time()
    store(CrawlReport(swarm, at - 0.1, at + 0.1, Snapshot(swarm, at, (what,)), indexed=frozenset({what.prefix})))


class LabPeer(Peer):
    """Posts below `/s/lab`, as a server does that was started with `--coordinator https://SITE/s/lab`."""

    base = "/s/lab"

    def post(self, path: str, body: Any, nonce: str | None = None, **extra: Any) -> Any:
        content = (
            body.model_dump_json().encode()
            if hasattr(body, "model_dump_json")
            else httpx.Request("POST", "http://x", json=body).content
        )
        signed = signed_base(f"https://{HOST}{extra.pop('signed_for', self.base)}") + path
        proof = self.signer.prove("POST", HOST, signed, content, nonce or fresh_nonce(self.client))
        address = f"{self.base}/api/v1{path}"
        headers = {"Authorization": proof.header()}
        return self.client.post(address, data=content, content_type="application/json", headers=headers, **extra)


def both_seen(client: Client) -> LabPeer:
    """The first swarm is whole, the lab has a hole that only `d` can fill."""
    for name, span in (("a", Span(0, 12)), ("c", Span(18, 30)), ("d", Span(0, 12))):
        followers.note_heartbeat("lab", Peer(name, client).question(span), datetime.now(UTC) - timedelta(seconds=20))
    look("main", WHOLE)
    look("lab", HOLED)
    return LabPeer("d", client)


def test_a_lease_of_one_swarm_lives_and_ends_in_it(client: Client) -> None:
    d = both_seen(client)
    lease = d.ask(Span(0, 12))["lease"]
    assert lease["urgency"] == "hole" and Lease.objects.get().swarm == "lab"
    assert Peer("d", client).step(lease["id"], "accept").status_code == 404, "the first swarm has no such lease"
    assert d.step(lease["id"], "accept", plan_version=lease["plan_version"]).json()["outcome"] == "ok"
    assert d.step(lease["id"], "progress", progress=0.4).json()["outcome"] == "ok"
    moved = signed_server("d", lease["start"], lease["end"])
    look("lab", replace(HOLED, servers=(*HOLED.servers[:2], moved)))
    tasks.settle_leases()
    assert Lease.objects.get().phase == Phase.DONE


def test_the_same_question_gets_each_swarm_s_own_answer(client: Client) -> None:
    d = both_seen(client)
    assert d.ask(Span(0, 12))["lease"] is not None
    first = Peer("d", client).ask(Span(0, 12))
    assert (first["advice"], first["lease"]) == ("stay", None)


def test_a_question_cannot_be_passed_on_to_another_swarm(client: Client) -> None:
    d = both_seen(client)
    assert d.post("/hint", d.question(Span(0, 12)), signed_for="").status_code == 401
    assert d.post("/hint", d.question(Span(0, 12)), signed_for="/s/main").status_code == 401
    assert not Lease.objects.exists()


def test_a_swarm_that_is_not_watched_here_is_not_found(client: Client) -> None:
    body = Peer("d", client).question().model_dump_json()
    answer = client.post("/s/nowhere/api/v1/hint", data=body, content_type="application/json")
    assert answer.status_code == 404 and "no swarm 'nowhere'" in answer.json()["detail"]


def test_reads_for_people_are_of_the_swarm_that_is_named(client: Client) -> None:
    d = both_seen(client)
    d.ask(Span(0, 12))
    for address in ("/s/lab/api/v1/needed?num_blocks=8", "/api/v1/needed?swarm=lab&num_blocks=8"):
        assert client.get(address).json()["items"][0]["summary"].startswith("cannot run")
    assert client.get("/api/v1/needed").json()["items"][0]["summary"].startswith("runs")
    assert len(client.get("/s/lab/api/v1/hints").json()["items"]) == 1 and not client.get("/api/v1/hints").json()["items"]
    lease = Lease.objects.get().pk
    assert (
        client.get(f"/s/lab/api/v1/hints/{lease}").status_code == 200
        and client.get(f"/api/v1/hints/{lease}").status_code == 404
    )
    assert client.get("/s/lab/api/v1/what-if?model=tiny-hf&add_blocks=6").json()["verdict_before"] == "broken"
    assert client.get("/s/lab/api/v1/models").json()["items"][0]["swarm"] == "lab"


async def test_a_reachability_check_asks_the_crawler_of_that_swarm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def ask(peer: str, swarm: str = "", caller: str = "") -> dict[str, Any]:
        asked.append((peer, swarm))
        return {"checked": True, "success": True, "message": "reached"}

    monkeypatch.setattr(reachability, "ask", ask)
    for base in ("", "/s/lab"):
        assert (await AsyncClient().get(f"{base}/api/v1/is_reachable/{peer_id('a')}")).json()["success"]
    assert asked == [(peer_id("a"), "main"), (peer_id("a"), "lab")]


async def test_the_block_server_s_client_signs_for_the_swarm_in_its_coordinator_s_address() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        stay = {"advice": "stay", "reason_code": "nothing-needed", "reason": "-", "retry_after_s": 30}
        said = {"nonce": "n" * 24, "expires_in_s": 120} if request.url.path.endswith("/nonce") else stay
        return httpx.Response(200, stream=httpx.ByteStream(json.dumps(said).encode()))

    hints = HintClient("https://site.example/behind/s/lab", signer("d"))
    hints._http = httpx.AsyncClient(base_url="https://site.example/behind/s/lab/api/v1", transport=httpx.MockTransport(answer))
    async with hints:
        question = Peer("d", Client()).question()
        await hints.ask(question)
    proof = signer("d").prove("POST", "site.example", "/s/lab/api/v1/hint", question.model_dump_json().encode(), "n" * 24)
    assert seen[-1].url.path == "/behind/s/lab/api/v1/hint" and seen[-1].headers["authorization"] == proof.header()
