"""What is stored is what is read back; and what a crawl could not see is never written as gone or empty."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.models import KEPT_FOR, Crawl, CrawlOutcome, CrawlQuerySet, ServerRow, WatchedModelQuerySet
from monitor.queries import known_models, latest_snapshot, watch
from monitor.store import store
from swarm.placement import find_holes
from swarm.snapshot import LOADING_LIMIT_S, SLOW_AFTER_S, Dropped, Model, Outcome, PeerState, Server, Snapshot
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span
from tests.monitor.seeding import NOW, SWARM, announced, failure, online, report, seed, unreachable, visited
from tests.strategies import models
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


def published(now: float = NOW):  # type: ignore[no-untyped-def]
    found = latest_snapshot(SWARM, now)
    assert found is not None
    return found


def states(now: float = NOW) -> dict[str, str]:
    """Peer id -> state of everything that is listed."""
    found = published(now)
    servers = [s for m in found.snapshot.models for s in m.servers] + [s for gone in found.absent.values() for s in gone]
    return {server.peer_id: server.state.value for server in servers}


def first_seen_now(server: Server) -> Server:
    return replace(server, loading_since=NOW) if server.state is PeerState.JOINING else server


@pytest.mark.parametrize(("outcome", "waited"), [(Outcome.PROTOCOL_ABSENT, True), (Outcome.TIMEOUT, False)])
def test_a_server_that_loads_is_waited_for_where_somebody_is_there_and_as_long_as_a_lease_may_stand(
    outcome: Outcome, waited: bool
) -> None:
    for after in (0.0, SLOW_AFTER_S, SLOW_AFTER_S + 30, LOADING_LIMIT_S, LOADING_LIMIT_S + 30):
        at = NOW + after
        seed(model(6, online("a", 0, 3, at=at), visited(announced("b", 3, 6, PeerState.JOINING), outcome, at=at)), at=at)
        (seen,) = published(at).snapshot.models
        (loading,) = (server for server in seen.servers if server.state is PeerState.JOINING)
        assert loading.loading_since == NOW
        assert loading.awaited is (waited and after <= LOADING_LIMIT_S)
        assert find_holes(seen) == (() if waited and after <= SLOW_AFTER_S else (Span(3, 6),))


def test_a_snapshot_comes_back_as_it_went_in() -> None:
    ping = replace(online("c", 0, 3).record, next_pings={peer_id("a"): 0.5, peer_id("b"): math.inf}, adapters=("x/y",))
    given_models = (
        model(6, online("a", 0, 3), first_seen_now(announced("b", 2, 6, PeerState.JOINING)), unread=frozenset({5})),
        replace(model(3, replace(online("c", 0, 3, None), record=ping), unreachable("d", 1, 2)), prefix="zweites"),
    )
    snapshot = Snapshot(SWARM, NOW, given_models, (Dropped("tiny-hf.1", "'x'", "subkey", "no peer id"),))
    store(replace(report(NOW), snapshot=snapshot))
    assert published().snapshot == snapshot


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(models(), st.booleans())
def test_any_snapshot_comes_back_whatever_was_stored_before(given_model: Model, before: bool) -> None:
    ordered = replace(
        given_model,
        servers=tuple(
            replace(first_seen_now(server), expires_at=NOW + 30)
            for server in sorted(given_model.servers, key=lambda s: (s.span, s.peer_id))
        ),
    )
    with transaction.atomic():
        if before:
            seed(model(9, online("s0", 0, 9), online("old", 0, 1)), at=NOW - 30)
        store(report(NOW, ordered))
        assert published().snapshot == Snapshot(SWARM, NOW, (ordered,))
        transaction.set_rollback(True)


def test_a_server_whose_record_is_gone_is_listed_as_gone_for_an_hour() -> None:
    seed(model(4, online("a", 0, 4), online("b", 0, 4)), at=NOW)
    seed(model(4, online("a", 0, 4)), at=NOW + 30)
    assert states(NOW + 30) == {peer_id("a"): "online", peer_id("b"): "gone"}
    sighting = published(NOW + 30).sightings["tiny-hf", peer_id("b")]
    assert (sighting.state_since, sighting.last_seen) == (NOW + 30, NOW)
    assert states(NOW + 3_629) == {peer_id("a"): "online", peer_id("b"): "gone"}
    assert states(NOW + 3_631) == {peer_id("a"): "online"}


def test_a_server_that_could_not_be_read_is_not_checked_and_not_gone() -> None:
    seed(model(4, online("a", 0, 2), online("b", 2, 4)), at=NOW)
    seed(model(4, online("a", 0, 2), unread=frozenset({2, 3})), at=NOW + 30)
    assert states(NOW + 30)[peer_id("b")] == "not checked"
    seed(model(4, online("a", 0, 2), online("b", 2, 4)), at=NOW + 60)
    assert states(NOW + 60)[peer_id("b")] == "online"


def test_a_failed_crawl_leaves_everything_as_it_was_and_says_why() -> None:
    seed(model(4, online("a", 0, 4)), at=NOW)
    store(failure(NOW + 30))
    store(failure(NOW + 60, "the index of models could not be read"))
    found = published(NOW + 60)
    assert found.snapshot.at == NOW and states(NOW + 60) == {peer_id("a"): "online"}
    assert found.crawl_failure == "the index of models could not be read"
    assert watch(SWARM, NOW + 60).failing_since == NOW + 29
    assert not found.stale and published(NOW + 91).stale
    seed(model(4, online("a", 0, 4)), at=NOW + 90)
    assert published(NOW + 90).crawl_failure == "" and watch(SWARM, NOW + 90).failing_since is None


def test_without_any_success_there_is_no_snapshot_but_a_reason() -> None:
    assert latest_snapshot(SWARM, NOW) is None and watch(SWARM, NOW).last_crawl is None
    store(failure(NOW))
    seen = watch(SWARM, NOW)
    assert seen.published is None and seen.last_crawl is not None
    assert seen.last_crawl.failure == "p2pd does not answer" and not seen.sees


def test_an_old_record_in_the_dht_is_no_sign_of_life() -> None:
    seed(model(4, online("a", 0, 4)), at=NOW)
    silent = replace(unreachable("a", 0, 4, at=NOW + 30), expires_at=NOW + 60)
    seed(model(4, silent), at=NOW + 30)
    assert published(NOW + 30).sightings["tiny-hf", peer_id("a")].last_seen == NOW
    renewed = replace(silent, expires_at=NOW + 200)
    seed(model(4, renewed), at=NOW + 60)
    assert published(NOW + 60).sightings["tiny-hf", peer_id("a")].last_seen == NOW + 60


def test_since_when_starts_anew_only_where_the_state_or_verdict_changes() -> None:
    seed(model(2, online("a", 0, 2)), at=NOW)
    seed(model(2, online("a", 0, 2)), at=NOW + 30)
    assert published(NOW + 30).verdict_since == {"tiny-hf": NOW}
    assert published(NOW + 30).sightings["tiny-hf", peer_id("a")].state_since == NOW
    seed(model(2, unreachable("a", 0, 2)), at=NOW + 60)
    assert published(NOW + 60).verdict_since == {"tiny-hf": NOW + 60}
    assert published(NOW + 60).sightings["tiny-hf", peer_id("a")].state_since == NOW + 60


def test_a_model_is_looked_for_an_hour_after_it_was_last_announced() -> None:
    seed(model(4, online("a", 0, 4)), at=NOW)
    silent = replace(report(NOW + 600, model(4)), indexed=frozenset())
    store(silent)
    assert known_models(SWARM, NOW + 3_600) == {"tiny-hf": ModelRecord(4, None)}
    assert known_models(SWARM, NOW + 3_601) == {}


def test_all_dropped_records_are_counted_and_the_first_are_kept() -> None:
    many = tuple(Dropped("tiny-hf.0", f"'{n}'", "subkey" if n % 2 else "shape", "") for n in range(250))
    seed(model(1), dropped=many)
    found = published()
    assert found.crawl.dropped == {"subkey": 125, "shape": 125}
    assert found.snapshot.dropped == many[:200]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("kind", "method"), [(CrawlQuerySet, "newest_success"), (WatchedModelQuerySet, "observed_in")])
def test_a_crawl_that_is_stored_while_the_last_one_is_read_tears_no_reading(
    monkeypatch: pytest.MonkeyPatch, kind: Any, method: str
) -> None:
    """Between two statements of one reader: without a second look every server would be absent, and every block a hole."""
    seed(model(4, online("a", 0, 4)))
    ask, stored = getattr(kind, method), []

    def store_the_next() -> None:
        store(report(NOW + 30, model(4, online("a", 0, 4, at=NOW + 30))))
        connection.close()

    def and_then_store(rows: Any, *given: Any) -> Any:
        found = ask(rows, *given)
        if not stored:
            stored.append(True)
            found = list(found) if method == "observed_in" else found
            # On a connection of its own, as the crawl worker has one.
            with ThreadPoolExecutor(1) as other:
                other.submit(store_the_next).result(30)
        return found

    monkeypatch.setattr(kind, method, and_then_store)
    seen = watch(SWARM, NOW + 31)
    assert stored and seen.published is not None and seen.published.snapshot.at == NOW + 30
    assert [server.peer_id for server in seen.published.snapshot.models[0].servers] == [peer_id("a")]
    assert not seen.published.absent["tiny-hf"]


def test_swarms_do_not_mix() -> None:
    seed(model(4, online("a", 0, 4)))
    store(report(NOW + 5, model(2), swarm="other"))
    assert states() == {peer_id("a"): "online"}
    assert watch("other", NOW + 5).published is not None


def test_old_rows_are_forgotten_but_never_the_last_success() -> None:
    seed(model(4, online("a", 0, 4), online("b", 0, 4)), at=NOW)
    seed(model(4, online("a", 0, 4)), at=NOW + 30)
    later = NOW + KEPT_FOR.total_seconds() + 100
    store(failure(later))
    assert Crawl.objects.count() == 3, "the clock may be ahead"
    store(failure(later + 3_700))
    assert [crawl.outcome for crawl in Crawl.objects.order_by("started_at")] == ["succeeded", "failed", "failed"]
    assert list(ServerRow.objects.values_list("state", flat=True)) == ["online"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "succeeded", "reason": "but"},
        {"outcome": "failed", "reason": ""},
        {"outcome": "perhaps"},
        {"finished_at": "2020-01-01T00:00:00Z"},
    ],
)
def test_the_database_refuses_crawls_that_cannot_be(wrong: dict[str, str]) -> None:
    seed(model(1))
    with pytest.raises(IntegrityError), transaction.atomic():
        Crawl.objects.filter(outcome=CrawlOutcome.SUCCEEDED).update(**wrong)


@pytest.mark.parametrize("wrong", [{"end": 0}, {"state": "dead"}, {"round_trip_s": -1.0}, {"visit_outcome": "shrug"}])
def test_the_database_refuses_servers_that_cannot_be(wrong: dict[str, object]) -> None:
    seed(model(4, online("a", 0, 4)))
    with pytest.raises(IntegrityError), transaction.atomic():
        ServerRow.objects.update(**wrong)
