"""docs/threat-model.md, claim by claim: each test has the name of the claim that it holds up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from coordinator import followers, hints, leases, limits
from coordinator.lease_terms import LEAST_LOADING_LIMIT_S, LONGEST_LOAD_S
from coordinator.models import Follower, Lease, Phase, Tally
from coordinator.signatures import NONCE_LIFE_S
from swarm.wire.hints import LeaseStep
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.signing import Peer, fresh_nonce, signed_server
from tests.coordinator.test_pauses import pass_time
from tests.swarms import model

pytestmark = pytest.mark.django_db

HOLED = model(30, signed_server("a", 0, 12), signed_server("c", 18, 30), signed_server("d", 0, 12, throughput=9.0))
NO_REDIS = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}}


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def d(client: Client) -> Peer:
    """The planner's choice for the hole that the monitor has just seen; `a` and `c` ask for hints as well."""
    for name, span in (("a", Span(0, 12)), ("c", Span(18, 30)), ("d", Span(0, 12))):
        followers.note_heartbeat(SWARM, Peer(name, client).question(span), now() - timedelta(seconds=20))
    seen(HOLED)
    return Peer("d", client)


@pytest.fixture
def mallory(client: Client) -> Peer:
    return Peer("mallory", client)


def unsigned(client: Client, path: str, body: str) -> Any:
    return client.post(f"/api/v1{path}", data=body, content_type="application/json")


def test_an_unsigned_question_gets_advice_and_no_lease_and_leaves_no_trace(client: Client, d: Peer) -> None:
    Follower.objects.all().delete()
    answer = unsigned(client, "/hint", d.question(Span(0, 12)).model_dump_json()).json()
    assert answer["advice"] == "move" and answer["span"] is not None
    assert answer["lease"] is None and "not signed" in answer["no_lease_because"]
    assert not Lease.objects.exists() and not Follower.objects.exists() and not Tally.objects.exists()


def test_nobody_asks_in_the_name_of_another_peer(d: Peer, mallory: Peer) -> None:
    response = mallory.post("/hint", d.question(Span(0, 12)))
    assert response.status_code == 401 and response["Content-Type"] == "application/problem+json"
    assert "not that of the peer" in response.json()["detail"]
    assert not Lease.objects.exists()


@pytest.mark.parametrize("step", ["accept", "progress", "decline"])
def test_nobody_takes_or_burns_the_lease_of_another_peer(client: Client, d: Peer, mallory: Peer, step: str) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    path = f"/lease/{lease['id']}/{step}"
    assert mallory.step(lease["id"], step).status_code == 404
    assert mallory.post(path, {"peer": d.peer_id}).status_code == 401
    assert unsigned(client, path, f'{{"peer": "{d.peer_id}"}}').status_code == 401
    kept = Lease.objects.get()
    assert (kept.phase, kept.renewals, kept.close_reason) == (Phase.OFFERED, 0, "")


def test_a_request_that_was_overheard_cannot_be_sent_again(client: Client, d: Peer) -> None:
    body = d.question(Span(0, 12)).model_dump_json().encode()
    headers = d.headers("/hint", body)
    answers = [client.post("/api/v1/hint", data=body, content_type="application/json", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 401]
    assert "used before" in answers[1].json()["detail"]
    assert answers[1]["Sepal-Nonce"]


def test_a_nonce_is_ours_and_lapses(client: Client, d: Peer) -> None:
    assert d.post("/hint", d.question(), nonce="made-up-by-myself-0000").status_code == 401
    nonce = fresh_nonce(client)
    redis: Any = cache
    left = redis._cache.get_client().ttl(redis.make_and_validate_key(f"nonce.{nonce}"))
    assert 0 < left <= NONCE_LIFE_S
    cache.delete(f"nonce.{nonce}")
    assert d.post("/hint", d.question(), nonce=nonce).status_code == 401


def test_a_forger_does_not_use_up_a_nonce(client: Client, d: Peer, mallory: Peer) -> None:
    nonce = fresh_nonce(client)
    assert mallory.post("/hint", d.question(Span(0, 12)), nonce=nonce).status_code == 401
    assert d.post("/hint", d.question(Span(0, 12)), nonce=nonce).status_code == 200


def test_a_signature_serves_one_request_only(client: Client, d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    body = LeaseStep(peer=d.peer_id).model_dump_json().encode()
    for step in ("accept", "decline"):
        headers = d.headers(f"/lease/{lease['id']}/progress", body)
        path = f"/api/v1/lease/{lease['id']}/{step}"
        assert client.post(path, data=body, content_type="application/json", headers=headers).status_code == 401
    assert Lease.objects.get().phase == Phase.OFFERED


def test_a_signature_for_another_site_is_worth_nothing_here(client: Client, d: Peer) -> None:
    body = d.question(Span(0, 12)).model_dump_json().encode()
    headers = d.headers("/hint", body, host="other-site.example")
    post = {"data": body, "content_type": "application/json"}
    assert client.post("/api/v1/hint", **post, headers=headers).status_code == 401
    # Nor can the site be talked into thinking that it is the other one.
    other = {**d.headers("/hint", body, host="other-site.example"), "Host": "other-site.example"}
    assert client.post("/api/v1/hint", **post, headers=other).status_code == 400
    assert not Lease.objects.exists()


def test_a_peer_that_asks_too_often_is_told_when_to_come_back(d: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUESTIONS_OF_A_PEER", limits.Limit("peer", 2))
    # Ten seconds before the minute ends, for the whole of the test.
    monkeypatch.setattr("monitor.limits.time", SimpleNamespace(time=lambda: 1_000_010.0))
    assert [d.post("/hint", d.question(Span(0, 12))).status_code for _ in range(2)] == [200, 200]
    response = d.post("/hint", d.question(Span(0, 12)))
    assert (response.status_code, response["Content-Type"]) == (429, "application/problem+json")
    assert response["Retry-After"] == "10"


def test_nobody_uses_up_the_limit_of_another_peer(d: Peer, mallory: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUESTIONS_OF_A_PEER", limits.Limit("peer", 1))
    for _ in range(3):
        assert mallory.post("/hint", d.question(Span(0, 12))).status_code == 401
    assert d.post("/hint", d.question(Span(0, 12))).status_code == 200


def test_an_address_is_counted_behind_our_proxies_only(client: Client, settings: Any) -> None:
    settings.SEPAL_TRUSTED_PROXIES = ["10.0.0.0/8"]

    def address(remote: str, forwarded: str) -> str:
        request = client.get("/livez", REMOTE_ADDR=remote, headers={"X-Forwarded-For": forwarded}).wsgi_request
        return limits.address_of(request)

    assert address("198.51.100.9", "203.0.113.7") == "198.51.100.9"
    assert address("10.0.0.1", "203.0.113.7") == "203.0.113.7"
    assert address("2001:db8::1", "") == address("2001:db8::2", "") != address("2001:db8:0:1::1", "")


def test_counting_stops_an_address_for_the_rest_of_the_minute() -> None:
    limit = limits.Limit("test", 3)
    for _ in range(3):
        limits.count(limit, "198.51.100.9", now=1_000_000.0)
    with pytest.raises(limits.TooMany) as stopped:
        limits.count(limit, "198.51.100.9", now=1_000_010.0)
    assert stopped.value.retry_after_s == 10
    limits.count(limit, "198.51.100.8", now=1_000_010.0)
    limits.count(limit, "198.51.100.9", now=1_000_020.0)


def test_a_crowd_of_made_up_peers_at_one_address_holds_few_leases(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "OPEN_LEASES_OF_AN_ADDRESS", 3)
    seen(HOLED)
    answers = [Peer(f"sybil {n}", client).ask() for n in range(5)]
    assert [answer["lease"] is not None for answer in answers] == [True, True, True, False, False]
    assert "from this address" in answers[4]["no_lease_because"]
    assert Peer("elsewhere", client).ask(REMOTE_ADDR="198.51.100.9")["lease"] is not None


def test_addresses_are_not_kept(client: Client) -> None:
    seen(HOLED)
    lease = Peer("new", client).ask(REMOTE_ADDR="198.51.100.9")["lease"]
    kept = Lease.objects.get()
    assert kept.asked_from and "198.51.100" not in repr(kept.__dict__)
    leases.close(kept, Phase.DECLINED, "pinned", now())
    assert Lease.objects.get().asked_from == ""
    assert "198.51.100" not in client.get(f"/api/v1/hints/{lease['id']}").content.decode()


def test_a_lie_about_what_is_served_hides_a_hole_for_one_crawl_at_most(client: Client) -> None:
    liar, honest = Peer("liar", client), Peer("new", client)
    seen(HOLED, ago_s=30)

    def honest_advice() -> Any:
        return hints.look(SWARM, honest.question(), now(), "").reason_code

    liar.ask(serving=Span(12, 18))
    assert honest_advice() != "hole"
    seen(HOLED)
    liar.ask(serving=Span(12, 18))
    assert honest_advice() == "hole", "the same words again"
    for words in (Span(11, 18), None, Span(12, 19)):
        liar.ask(serving=words)
        Lease.objects.all().delete()
        assert honest_advice() == "hole", "other words, too soon"


def test_a_promise_that_is_not_kept_ends_whatever_is_reported(d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    d.step(lease["id"], "accept")
    start, kept = now(), Lease.objects.get()
    for minutes in range(2, 24 * 60, 2):
        if not leases.renew(kept, start + timedelta(minutes=minutes), 0.5 + minutes / 10_000):
            break
    assert minutes * 60 <= LONGEST_LOAD_S + 120
    leases.settle(SWARM, HOLED, start, start + timedelta(minutes=minutes))
    assert (Lease.objects.get().phase, Lease.objects.get().close_reason) == (Phase.EXPIRED, "not online by the deadline")


@pytest.mark.parametrize("est_load_s", [None, 3_600.0, 86_400.0])
def test_made_up_progress_and_a_made_up_load_time_keep_a_hole_shut_for_ten_minutes(
    client: Client, est_load_s: float | None
) -> None:
    liar, honest = Peer("liar", client), Peer("new", client)
    seen(HOLED)
    answer = liar.post("/hint", liar.question().model_copy(update={"est_load_s": est_load_s})).json()
    liar.step(answer["lease"]["id"], "accept")
    for minute in range(1, 11):
        pass_time(60.0)
        liar.step(answer["lease"]["id"], "progress", progress=minute / 11)
        seen(HOLED)
        assert (hints.look(SWARM, honest.question(), now(), "").reason_code == "hole") == (minute == 10)
    assert honest.ask()["lease"] is not None


def test_a_progress_that_is_on_course_for_ever_holds_no_other_move_up(d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    d.step(lease["id"], "accept")
    assert leases.reloading(SWARM, "tiny-hf", now()) == 1
    pass_time(LEAST_LOADING_LIMIT_S)
    Lease.objects.update(expires_at=now() + timedelta(minutes=3))
    assert leases.reloading(SWARM, "tiny-hf", now()) == 0


def test_a_body_that_is_too_long_is_refused(client: Client) -> None:
    response = unsigned(client, "/hint", '{"peer": "' + "x" * 20_000 + '"}')
    assert (response.status_code, response["Content-Type"]) == (413, "application/problem+json")


def test_without_redis_no_signature_counts_and_reads_go_on(client: Client, d: Peer, settings: Any) -> None:
    nonce = fresh_nonce(client)
    settings.CACHES = NO_REDIS
    response = d.post("/hint", d.question(Span(0, 12)), nonce=nonce)
    assert response.status_code == 503 and response["Retry-After"]
    assert client.post("/api/v1/hint/nonce").status_code == 503
    assert not Lease.objects.exists()
    assert client.get("/api/v1/needed").status_code == 200
    assert unsigned(client, "/hint", d.question(Span(0, 12)).model_dump_json()).status_code == 200


def test_what_a_server_says_is_shown_as_text(client: Client, d: Peer) -> None:
    lease = d.ask(Span(0, 12))["lease"]
    d.step(lease["id"], "decline", reason="<script>alert(1)</script>")
    text = client.get("/hints").content.decode()
    assert "<script>" not in text and "&lt;script&gt;" in text
