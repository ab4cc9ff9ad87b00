"""What the planner reasons on is read once a crawl, and is never an older one than the newest."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test import Client

from coordinator import followers, hints, limits, watching
from coordinator.desk.models import Kind
from coordinator.models import Lease
from monitor import queries
from monitor.rates.models import AnswerFinding, Probe
from swarm.wire.hints import OtherModel, ReasonCode
from swarm.wire.spans import Span
from tests.coordinator.desk.people import decided
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.signing import Peer, signed_server
from tests.coordinator.test_hints import HOLED, ask, everyone_asks, holed, now
from tests.swarms import model, peer_id, server

WHOLE = model(30, server("a", 0, 12), server("d", 0, 12), server("b", 12, 24), server("c", 18, 30))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each reading of the whole swarm."""
    found: list[str] = []
    read = queries.watch_everyone

    def counted(swarm: str, *given: Any) -> Any:
        found.append(swarm)
        return read(swarm, *given)

    monkeypatch.setattr(queries, "watch_everyone", counted)
    return found


@pytest.mark.django_db
def test_however_many_ask_a_crawl_is_read_once(reads: list[str]) -> None:
    holed()
    everyone_asks(HOLED)
    everyone_asks(HOLED)
    assert reads == [SWARM]
    seen(HOLED)
    everyone_asks(HOLED)
    assert reads == [SWARM] * 2


@pytest.mark.django_db
def test_a_crawl_that_is_stored_while_the_lock_is_waited_for_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    holed()
    wait = hints._one_at_a_time

    def meanwhile(*given: Any) -> None:
        wait(*given)
        seen(WHOLE)

    monkeypatch.setattr(hints, "_one_at_a_time", meanwhile)
    assert ask("d", Span(0, 12)).lease is None, "the hole is filled already"
    assert not Lease.objects.exists()


@pytest.mark.django_db
def test_a_ruling_counts_at_once_and_so_does_its_end(reads: list[str]) -> None:
    holed()
    assert ask("a", Span(0, 12)).reason_code != ReasonCode.QUARANTINED
    rule = decided(Kind.QUARANTINE, peer_id("a"), swarm=SWARM)
    assert ask("a", Span(0, 12)).reason_code == ReasonCode.QUARANTINED
    rule.delete()
    assert ask("a", Span(0, 12)).reason_code != ReasonCode.QUARANTINED
    assert len(reads) == 3


@pytest.mark.django_db
@pytest.mark.parametrize("table", [Probe, AnswerFinding])
def test_what_is_measured_of_a_server_counts_at_once(reads: list[str], table: Any) -> None:
    holed()
    about = {"swarm": SWARM, "prefix": "tiny-hf", "peer_id": peer_id("a"), "at": now(), "start": 0, "end": 12}
    more = {"tokens_per_s": 5.0} if table is Probe else {"standing": "disputed", "round": 1}
    ask("a", Span(0, 12))
    table.objects.create(**about, **more)
    ask("a", Span(0, 12))
    assert len(reads) == 2


@pytest.mark.django_db
def test_what_is_kept_grows_old_by_the_clock(monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> None:
    at = seen(HOLED)
    assert ask("a", Span(0, 12)).reason_code != ReasonCode.BLIND
    monkeypatch.setattr(watching, "REREAD_AFTER_S", 10_000.0)
    monkeypatch.setattr(watching.time, "time", lambda: at + 1_000.0)
    assert ask("a", Span(0, 12)).reason_code == ReasonCode.BLIND
    assert len(reads) == 1


@pytest.mark.django_db
def test_a_question_about_many_models_counts_as_many(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUESTS_OF_AN_ADDRESS", limits.Limit("address", 15))
    seen(model(30, signed_server("a", 0, 12)))
    peer = Peer("a", client)
    dear = peer.question(Span(0, 12)).model_copy(
        update={"also": tuple(OtherModel(model=f"m{n}", num_blocks_max=4) for n in range(8))}
    )
    # Each with its nonce: 2 and 10 requests.
    assert [peer.post("/hint", asked).status_code for asked in (peer.question(Span(0, 12)), dear, dear)] == [200, 200, 429]


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    """Another process that holds the model's lock."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            hints._one_at_a_time(SWARM, ["tiny-hf"])
            held.set()
            done.wait(30.0)
        connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    yield
    done.set()
    thread.join()


@pytest.mark.django_db
@pytest.mark.usefixtures("elsewhere")
def test_who_waits_too_long_for_others_is_told_to_come_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "LOCK_WAIT_S", 0.05)
    seen(model(30, signed_server("a", 0, 12)))
    peer = Peer("a", client)
    refused = peer.post("/hint", peer.question(Span(0, 12)))
    assert refused.status_code == 503 and refused.json()["type"].endswith("/busy")
    assert int(refused["Retry-After"]) > 0


@pytest.mark.django_db(transaction=True)
def test_two_questions_that_end_each_other_s_leases_do_not_wait_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two servers let an offer of the model lapse that the other one now asks about."""
    seen(*(replace(model(12, server(f"k{prefix}", 0, 4)), prefix=prefix) for prefix in ("ma", "mb")))
    for prefix, name in (("ma", "b"), ("mb", "a")):
        assert hints.answer(SWARM, question(name, 4, prefix=prefix), now()).lease is not None
    Lease.objects.update(expires_at=now() - timedelta(seconds=200))
    both = threading.Barrier(2)
    note = followers.note_heartbeat

    def both_have_written(*given: Any) -> Any:
        noted = note(*given)
        # The second one may be waiting for the first, and then never comes here: that is the point.
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return noted

    monkeypatch.setattr(followers, "note_heartbeat", both_have_written)
    failed: list[Exception] = []

    def asks(name: str, prefix: str) -> None:
        try:
            hints.answer(SWARM, question(name, 4, prefix=prefix), datetime.now(UTC))
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=asks, args=pair) for pair in (("a", "ma"), ("b", "mb"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert not Lease.objects.open().filter(expires_at__lt=now()).exists(), "both have lapsed"
