"""`is_reachable` as Petals servers ask it: 200 with an answer, or an error where we could not find out."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from celery import current_app
from django.core.cache import cache
from django.test import Client

from monitor import reachability, tasks
from monitor.limits import Limit
from monitor.reachability import answer_of, caller_address
from monitor.swarms import WatchedSwarm
from swarm.errors import Unreachable
from swarm.snapshot import Outcome, Visit
from tests.swarms import peer_id

PROXY = "10.0.0.1"


@pytest.mark.parametrize(
    ("remote", "forwarded", "proxies", "caller"),
    [
        ("198.51.100.9", "", [], "198.51.100.9"),
        ("198.51.100.9", "203.0.113.7", [], "198.51.100.9"),
        (PROXY, "203.0.113.7", [PROXY], "203.0.113.7"),
        (PROXY, "1.1.1.1, 203.0.113.7", [PROXY], "203.0.113.7"),
        (PROXY, "203.0.113.7, 10.0.0.2", ["10.0.0.0/8"], "203.0.113.7"),
        (PROXY, "203.0.113.7, junk", [PROXY], PROXY),
        (PROXY, "", [PROXY], PROXY),
        (PROXY, "10.0.0.3, 10.0.0.2", ["10.0.0.0/8"], "10.0.0.3"),
        ("::1", "2001:db8::7", ["::1"], "2001:db8::7"),
        ("", "203.0.113.7", [PROXY], ""),
    ],
)
def test_who_asks_is_the_right_most_address_that_is_no_proxy_of_ours(
    remote: str, forwarded: str, proxies: list[str], caller: str
) -> None:
    assert caller_address(remote, forwarded, proxies) == caller


@pytest.mark.parametrize(
    ("outcome", "success"),
    [
        (Outcome.ANSWERED, True),
        (Outcome.PROTOCOL_ABSENT, True),
        (Outcome.NOT_HELD, True),
        (Outcome.REFUSED, False),
        (Outcome.NO_ADDRESS, False),
        (Outcome.TIMEOUT, False),
        (Outcome.ERROR, False),
    ],
)
def test_whoever_answers_at_all_is_reachable(outcome: Outcome, success: bool) -> None:
    answer = answer_of(Visit("p", 0.0, outcome, "raw text of /ip4/203.0.113.7/tcp/1"))
    assert answer["success"] is success and answer["checked"] is True
    assert "203.0.113.7" not in answer["message"]


class Worker:
    """The crawl worker's end: takes what the site queues and answers with one visit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queued: list[tuple[str, dict[str, Any]]] = []
        self.outcome: Outcome | None = Outcome.ANSWERED
        self.fails = False
        monkeypatch.setattr(current_app._get_current_object(), "send_task", self.take)
        monkeypatch.setattr(tasks, "_crawler", lambda swarm: self)

    def take(self, name: str, args: list[str], **options: Any) -> None:
        self.queued.append((name, options))
        if self.outcome is not None or self.fails:
            tasks.dial(*args)

    def dial(self, asked: str) -> Visit:
        if self.fails:
            raise Unreachable("p2pd does not answer")
        assert self.outcome is not None
        return Visit(asked, 0.0, self.outcome, "refused")


@pytest.fixture(autouse=True)
def _own_corner_of_redis(settings: Any) -> None:
    """What one test has asked is no other test's question."""
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": uuid.uuid4().hex}}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def ask(client: Client, peer: str) -> Any:
    return client.get(f"/api/v1/is_reachable/{peer}", REMOTE_ADDR="198.51.100.9")


def test_a_reachable_peer_gets_what_petals_reads(client: Client, worker: Worker) -> None:
    response = ask(client, peer_id("a"))
    assert response.status_code == 200
    assert response.json() == {"success": True, "message": "reached", "your_ip": "198.51.100.9"}
    ((name, options),) = worker.queued
    assert name == "monitor.tasks.dial" and options["queue"] == "crawl"


def test_an_unreachable_peer_gets_200_and_the_reason(client: Client, worker: Worker) -> None:
    worker.outcome = Outcome.REFUSED
    response = ask(client, peer_id("a"))
    assert response.status_code == 200
    assert response.json()["success"] is False and "port open" in response.json()["message"]


def test_what_is_no_peer_id_is_answered_without_dialling(client: Client, worker: Worker) -> None:
    response = ask(client, "no-peer")
    assert response.status_code == 200 and response.json()["success"] is False
    assert "no peer id" in response.json()["message"] and worker.queued == []


def test_a_worker_that_does_not_answer_is_an_error_so_that_the_server_skips_the_check(
    client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.outcome = None
    monkeypatch.setattr(reachability.ask, "__defaults__", ("", "", 0.01))
    response = ask(client, peer_id("a"))
    assert response.status_code == 503 and response.headers["Content-Type"].startswith("application/problem+json")
    assert "could not check" in response.json()["detail"]


def test_the_same_question_from_the_same_caller_is_dialled_once(client: Client, worker: Worker) -> None:
    first = ask(client, peer_id("a")).json()
    worker.outcome = Outcome.REFUSED
    assert ask(client, peer_id("a")).json() == first, "the answer of a moment ago"
    elsewhere = client.get(f"/api/v1/is_reachable/{peer_id('a')}", REMOTE_ADDR="198.51.100.8")
    assert elsewhere.json()["success"] is False, "another caller's question is dialled anew"
    assert ask(client, peer_id("b")).json()["success"] is False, "and so is one about another peer"
    assert len(worker.queued) == 3


def test_whoever_has_many_peers_dialled_is_told_to_wait(
    client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.api.petals.DIALS_OF_AN_ADDRESS", Limit("dial", 2))
    assert [ask(client, peer_id(name)).status_code for name in "abc"] == [200, 200, 429]
    assert int(ask(client, peer_id("d"))["Retry-After"]) >= 1
    assert ask(client, "no-peer").status_code == 200, "what is not dialled is not counted"


def test_a_peer_of_another_swarm_is_dialled_there(client: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tasks, "_crawler", lambda swarm: asked.append(swarm.name) or worker)
    monkeypatch.setattr(
        "monitor.swarms.configured", lambda: (WatchedSwarm("main", "main", ()), WatchedSwarm("other", "other", ()))
    )
    client.get(f"/api/v1/is_reachable/{peer_id('a')}?swarm=other")
    assert asked == ["other"]
    assert client.get(f"/api/v1/is_reachable/{peer_id('a')}?swarm=nobody").status_code == 404


def test_an_answer_for_one_caller_is_kept_by_nobody(client: Client, worker: Worker) -> None:
    response = ask(client, peer_id("a"))
    assert response["Cache-Control"] == "private, no-store" and not response.has_header("ETag")


def test_a_monitor_without_a_swarm_does_not_blame_the_server(client: Client, worker: Worker) -> None:
    worker.fails = True
    assert ask(client, peer_id("a")).status_code == 503


def test_a_dead_queue_does_not_blame_the_server(client: Client, settings) -> None:  # type: ignore[no-untyped-def]
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    assert ask(client, peer_id("a")).status_code == 503


def test_dial_gives_its_answer_to_who_asked_and_to_celery(worker: Worker) -> None:
    answer = tasks.dial(peer_id("a"), "question-1")
    assert answer == {"checked": True, "success": True, "message": "reached"} == cache.get("dial.question-1")
