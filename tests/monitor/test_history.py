"""Partitions, roll-ups and retention: each may be run again at any time, and loses nothing that is still needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.forms.models import model_to_dict

from monitor import tasks
from monitor.history import partitions, retention, rollups
from monitor.history.minutes import NO_MINUTE, Minutes, bridged, midnight, moment
from monitor.history.models import BlockDay, ModelDay, ModelHour, ModelMinute, Peer, PeerDay, PeerSample, RolledUp, SwarmDay
from monitor.models import Crawl, WatchedModel
from monitor.store import store
from tests.monitor.seeding import NOW, failure, online, report, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db
TODAY = moment(NOW).date()


def some_crawls() -> None:
    for after in (0, 60, 120):
        seed(model(3, online("a", 0, 3), online("b", 0, 2)), at=NOW + after)


def bear_out(now: datetime) -> None:
    """There has been a crawl by this clock, if one that saw nothing."""
    store(failure((now - 2 * rollups.HOUR).timestamp()))


def days() -> list[dict[str, object]]:
    tables = (ModelDay, ModelHour, BlockDay, PeerDay, SwarmDay)
    return [model_to_dict(row) | {"pk": row.pk} for table in tables for row in table.objects.order_by("pk")]


def test_days_are_made_ahead_and_rows_that_came_before_their_partition_move_into_it() -> None:
    some_crawls()
    assert partitions.strays() == 9
    partitions.maintain(moment(NOW))
    assert partitions.strays() == 0 and PeerSample.objects.count() == 6
    for table in partitions.TABLES:
        assert partitions.days_of(table) == {TODAY + timedelta(days=n) for n in range(partitions.AHEAD + 1)}
    partitions.maintain(moment(NOW))
    seed(model(3, online("a", 0, 3)), at=NOW + 86_400)
    assert partitions.strays() == 0


def test_old_partitions_go_once_they_are_rolled_up_and_never_before() -> None:
    some_crawls()
    partitions.maintain(moment(NOW))
    late = moment(NOW) + timedelta(days=partitions.KEPT + 1)
    bear_out(late)
    partitions.maintain(late)
    assert TODAY in partitions.days_of("monitor_peersample"), "nobody has counted it yet"
    rollups.roll_up(late)
    before = days()
    partitions.maintain(late)
    assert TODAY not in partitions.days_of("monitor_peersample") and not PeerSample.objects.exists()
    rollups.roll_up(late)
    assert days() == before and len(ModelDay.objects.get().watched) == 3


def test_rolling_up_again_changes_nothing_and_a_stop_in_between_loses_nothing() -> None:
    some_crawls()
    rollups.roll_up(moment(NOW + 60))
    rollups.roll_up(moment(NOW + 60))
    rollups.roll_up(moment(NOW + 120))
    once = days()
    RolledUp.objects.all().delete()
    rollups.roll_up(moment(NOW + 120))
    assert days() == once
    day = ModelDay.objects.get()
    assert (len(day.watched), len(day.thin), len(day.broken)) == (3, 3, 0)
    hour = ModelHour.objects.get()
    assert (hour.watched, hour.thin, hour.servers_min, hour.servers_mean) == (3, 3, 2, 2.0)
    assert [(row.block, len(row.thin)) for row in BlockDay.objects.all()] == [(2, 3)]


def test_a_day_of_a_server_holds_its_minutes_and_its_throughput_hour_by_hour() -> None:
    start = NOW // 86_400 * 86_400
    for hour, throughput in ((0, 10.0), (0, 20.0), (5, 40.0), (23, None)):
        after = hour * 3_600 + (60 if throughput == 20.0 else 0)
        seed(model(1, online("a", 0, 1, throughput)), at=start + after)
        rollups.roll_up(moment(start + after))
    row = PeerDay.objects.get()
    assert len(row.up) == 4 and row.first_minute == 0 and row.unknown is None
    assert row.throughput == [15.0, *[None] * 4, 40.0, *[None] * 18]


def test_storing_the_same_crawl_again_changes_no_sample() -> None:
    same = report(NOW, model(3, online("a", 0, 3), online("b", 0, 2)))
    store(same)
    before = list(PeerSample.objects.values()), list(ModelMinute.objects.values())
    store(same)
    assert (list(PeerSample.objects.values()), list(ModelMinute.objects.values())) == before


def test_retention_forgets_old_days_and_servers_nobody_remembers() -> None:
    some_crawls()
    rollups.roll_up(moment(NOW + 120))
    for after in (91, 93, 402):
        bear_out(moment(NOW) + timedelta(days=after))
    retention.forget(moment(NOW) + timedelta(days=91))
    assert PeerDay.objects.count() == 2 and Peer.objects.count() == 2
    PeerSample.objects.all().delete()
    for _ in range(2):
        retention.forget(moment(NOW) + timedelta(days=93))
        assert not PeerDay.objects.exists() and not Peer.objects.exists()
        assert ModelDay.objects.exists() and BlockDay.objects.exists() and ModelHour.objects.exists()
    retention.forget(moment(NOW) + timedelta(days=402))
    assert not ModelDay.objects.exists() and not BlockDay.objects.exists() and not SwarmDay.objects.exists()


def test_the_tasks_run_on_an_empty_database_and_again() -> None:
    for _ in range(2):
        tasks.remember()
        tasks.forget()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE monitor_modelminute SET thin = '{[0,2)}', missing = '{[1,3)}'",
        "UPDATE monitor_modelminute SET ts = ts + interval '1 second'",
        "UPDATE monitor_modelminute SET servers = -1",
        'UPDATE monitor_peersample SET "end" = start',
        "UPDATE monitor_peersample SET state = 'asleep'",
        "UPDATE monitor_modelday SET broken = ~watched",
        "UPDATE monitor_modelday SET broken = watched, thin = watched",
        "UPDATE monitor_blockday SET missing = thin",
        "UPDATE monitor_peerday SET unknown = up",
        "UPDATE monitor_peerday SET throughput = ARRAY[1.0]",
        "UPDATE monitor_peerday SET first_minute = 1440",
        "UPDATE monitor_modelhour SET broken = watched, thin = watched",
        "UPDATE monitor_modelhour SET watched = 61",
        "INSERT INTO monitor_rolledup VALUES (2, now())",
    ],
)
def test_the_database_refuses_what_cannot_be(statement: str) -> None:
    some_crawls()
    rollups.roll_up(moment(NOW + 120))
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_model_takes_its_history_with_it() -> None:
    some_crawls()
    rollups.roll_up(moment(NOW + 120))
    WatchedModel.objects.all().delete()
    assert not PeerSample.objects.exists() and not ModelDay.objects.exists() and not PeerDay.objects.exists()


def test_minutes_are_a_set() -> None:
    some = Minutes.of({0, 5, 1_439})
    assert len(some) == 3 and 5 in some and 6 not in some
    assert len(some.since(5)) == 2 and len(some.without(Minutes.of({5}))) == 2
    assert Minutes.of(range(1_440)).text == "1" * 1_440
    for wrong in ("", "1" * 1_439, "2" * 1_440):
        with pytest.raises(ValueError, match="1440"):
            Minutes(wrong)
    assert Minutes().text == NO_MINUTE


def test_only_a_crawl_in_a_row_is_bridged() -> None:
    assert bridged(None, 600.0, 300.0) == []
    assert bridged(0.0, 300.0, 300.0) == [60.0, 120.0, 180.0, 240.0]
    assert bridged(0.0, 451.0, 300.0) == []
    assert bridged(0.0, 45.0, 30.0) == []
    assert midnight(TODAY) <= moment(NOW)


def test_a_peer_id_is_written_out_once() -> None:
    some_crawls()
    assert set(Peer.objects.values_list("peer_id", flat=True)) == {peer_id("a"), peer_id("b")}


def test_a_clock_that_was_set_back_costs_no_crawl_and_no_history() -> None:
    torn = model(2, online("a", 0, 1))
    for at in (NOW + 7_200, NOW + 7_230, NOW, NOW + 30, NOW + 60):
        seed(torn, at=at)
    rollups.roll_up(moment(NOW + 7_230))
    RolledUp.objects.all().delete()
    rollups.roll_up(moment(NOW + 60))
    assert Crawl.objects.count() == 5 and ModelMinute.objects.count() >= 3


def test_where_the_history_cannot_be_written_the_crawl_is_stored_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    monkeypatch.setattr("monitor.history.samples.write", break_down)
    some_crawls()
    assert Crawl.objects.count() == 3 and not PeerSample.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_partitions_are_made_while_a_crawl_is_being_stored() -> None:
    """Both lock the same tables; in another order they would wait for each other, and Postgres would end one of them."""
    with ThreadPoolExecutor(1) as elsewhere:
        with transaction.atomic():
            some_crawls()
            making = elsewhere.submit(in_a_connection_of_its_own, lambda: partitions.maintain(moment(NOW)))
            wait_for_someone_to_wait()
            seed(model(3, online("c", 0, 3)), at=NOW + 180)
        making.result(timeout=30)
    assert partitions.strays() == 0 and ModelMinute.objects.count() == 4
    drop_partitions()


def in_a_connection_of_its_own(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()


def wait_for_someone_to_wait() -> None:
    deadline = time.monotonic() + 30
    with connection.cursor() as cursor:
        while time.monotonic() < deadline:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            if cursor.fetchone() == (True,):
                return
            time.sleep(0.02)
    raise AssertionError("nobody waits for a lock: the test does not test what it is meant to")


def drop_partitions() -> None:
    """Other tests begin without any; a test in a transaction takes its own away by itself."""
    with connection.cursor() as cursor:
        for table in partitions.TABLES:
            for day in partitions.days_of(table):
                cursor.execute(f"DROP TABLE {table}_{day:%Y%m%d}")
