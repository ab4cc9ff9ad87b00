"""The clock is far ahead for one beat, and right again: nothing is lost by it, and nothing waits until that time comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app
from django.core.cache import cache

from coordinator.beat import Scheduler
from monitor import live, queries
from monitor.alerts import outbox
from monitor.alerts.models import Delivery, Subscription
from monitor.alerts.rules import News
from monitor.history import partitions, record, retention, rollups
from monitor.history.minutes import moment
from monitor.history.models import Incident, ModelDay, ModelMinute, PeerDay, PeerSample, RolledUp, SwarmDay
from monitor.models import Crawl, KeptSnapshot, ServerRow
from monitor.rates import evidence, findings
from monitor.rates.choose import Past, Subject, choose
from monitor.rates.facts import Rate
from monitor.rates.models import AnswerFinding, Probe
from swarm.snapshot import Model
from swarm.wire.spans import Span
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

DAY_S = 86_400.0
AHEAD_S = [100 * DAY_S, 4 * 365 * DAY_S]


def whole(at: float) -> Model:
    return model(2, online("a", 0, 2, at=at), online("b", 0, 2, at=at))


def remember(at: float) -> None:
    """As the site does each minute, and each hour."""
    record.watch_the_clock(SWARM, at)
    partitions.maintain(moment(at))
    rollups.roll_up(moment(at))
    retention.forget(moment(at))
    evidence.forget(moment(at))


def some_days() -> float:
    """Three days with three crawls each, an hour apart; when the last was."""
    for day in range(3):
        for hour in range(3):
            at = NOW + day * DAY_S + hour * 3_600
            seed(whole(at), at=at)
            remember(at)
    return at


def kept() -> dict[str, int]:
    tables: tuple[Any, ...] = (PeerDay, ModelDay, SwarmDay, ModelMinute, PeerSample, Crawl, KeptSnapshot, Probe)
    return {table.__name__: table.objects.count() for table in tables}


@pytest.mark.parametrize("ahead_s", AHEAD_S, ids=["100 days", "4 years"])
def test_one_beat_costs_no_history_and_rolls_up_no_empty_years(monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> None:
    last = some_days()
    note("a", last)
    before = kept()
    hours: list[datetime] = []
    roll_up_hour = rollups.roll_up_hour

    def noted(hour: datetime) -> None:
        hours.append(hour)
        roll_up_hour(hour)

    monkeypatch.setattr(rollups, "roll_up_hour", noted)
    remember(last + ahead_s)
    assert kept() == before and len(hours) <= 1
    assert RolledUp.objects.get().until <= moment(last + 3_600), "what is seen from now on is still to be counted"
    assert not Incident.objects.filter(started_before__gt=moment(last + DAY_S)).exists()
    assert not Incident.objects.filter(bad_at__gt=moment(last + DAY_S)).exists()


def test_nor_does_a_crawl_in_it() -> None:
    last = some_days()
    before = kept()
    seed(whole(last + 100 * DAY_S), at=last + 100 * DAY_S)
    remember(last + 100 * DAY_S + 30)
    after = kept()
    assert all(after[name] >= count for name, count in before.items()), (before, after)
    seed(whole(last + 60), at=last + 60)
    remember(last + 120)
    assert RolledUp.objects.get().until <= moment(last + 120)
    assert ModelDay.objects.filter(day=moment(last).date()).get().watched.text.count("1") == 4


def test_a_site_that_was_off_for_long_forgets_once_it_has_crawled_for_an_hour() -> None:
    last = some_days()
    later = last + 100 * DAY_S
    for after in (0, 1_800, 3_660):
        assert PeerDay.objects.filter(day__lte=moment(last).date()).exists() and Crawl.objects.count() > 3
        seed(whole(later + after), at=later + after)
        remember(later + after)
    assert not PeerDay.objects.filter(day__lte=moment(last).date()).exists() and Crawl.objects.count() == 3
    assert moment(last).date() not in partitions.days_of("monitor_modelminute")


def note(name: str, at: float, rate: float | None = 5.0) -> Probe:
    return evidence.note_probe(SWARM, Subject("tiny-hf", peer_id(name), Span(0, 2)), at, Rate(rate))


def test_servers_measured_in_it_are_measured_again_and_what_was_found_counts_no_longer() -> None:
    seed(whole(NOW))
    published = queries.latest_snapshot(SWARM, NOW + 1)
    assert published is not None
    far = NOW + 300 * DAY_S
    for name in ("a", "b"):
        assert note(name, far)
    AnswerFinding.objects.create(
        swarm=SWARM,
        prefix="tiny-hf",
        peer_id=peer_id("a"),
        at=moment(far),
        standing="wrong",
        round=1,
        start=0,
        end=2,
        wrong="x",
        times=1,
    )
    asked = choose(published.snapshot, evidence.past(SWARM, NOW + 30), NOW + 30)
    assert {subject.peer_id for subject in asked} == {peer_id("a"), peer_id("b")}
    assert {s.peer_id for s in choose(published.snapshot, {("tiny-hf", peer_id("a")): Past(far, True)}, NOW)} >= {peer_id("a")}
    seen = evidence.seen_of(SWARM, moment(NOW + 30))
    assert not seen.evidence and not seen.answers
    note("a", NOW + 30, 7.0)
    assert [s.peer_id for s in choose(published.snapshot, evidence.past(SWARM, NOW + 60), NOW + 60)] == [peer_id("b")]
    assert evidence.seen_of(SWARM, moment(NOW + 60)).evidence["tiny-hf", peer_id("a")].measured == (7.0,)
    findings.refresh(SWARM, moment(NOW + 60))
    evidence.forget(moment(NOW + 60))
    assert [row.at for row in Probe.objects.all()] == [moment(NOW + 30)]


def test_who_left_in_it_is_not_listed_until_then() -> None:
    seed(whole(NOW))
    far = NOW + 100 * DAY_S
    seed(model(2, online("a", 0, 2, at=far)), at=far)
    seed(model(2, online("a", 0, 2, at=NOW + 60)), at=NOW + 60)
    gone = ServerRow.objects.get(peer_id=peer_id("b"))
    assert gone.state == "gone" and gone.state_since == moment(NOW + 60)


def test_who_left_in_it_stays_gone_where_its_blocks_cannot_be_read_afterwards() -> None:
    seed(whole(NOW))
    far = NOW + 100 * DAY_S
    seed(model(2, online("a", 0, 2, at=far)), at=far)
    seed(model(2, online("a", 0, 2, at=NOW + 60), unread=frozenset({1})), at=NOW + 60)
    gone = ServerRow.objects.get(peer_id=peer_id("b"))
    assert (gone.state, gone.state_since) == ("gone", moment(NOW + 60))
    found = {
        sample.peer.peer_id: sample.up for sample in PeerSample.objects.filter(ts__lt=moment(NOW + DAY_S), ts__gt=moment(NOW))
    }
    assert peer_id("b") not in found, "nobody looked for it"


def test_a_push_asked_for_in_it_and_lost_keeps_no_other_from_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    sent: list[str] = []
    now = NOW + 100 * DAY_S
    monkeypatch.setattr("time.time", lambda: now)
    monkeypatch.setattr(current_app._get_current_object(), "send_task", lambda name, **_: sent.append(name))
    live.request_push(SWARM)
    now = NOW
    live.request_push(SWARM)
    live.request_push(SWARM)
    assert len(sent) == 2


def test_a_message_that_was_put_off_in_it_is_sent_at_once() -> None:
    far = moment(NOW + 100 * DAY_S)
    wanted = Subscription.objects.create(
        swarm=SWARM, topic="blind", way="webhook", address="https://example.org/x", confirmed_at=far, created_at=far
    )
    outbox.put(wanted, News.FIRED, {}, far)
    sent: list[Delivery] = []
    assert outbox.run(moment(NOW), sent.append) == len(sent) == 1
    assert Delivery.objects.get().sent_at == moment(NOW)


def test_beat_goes_on_with_every_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with one that was not due in it, and by a file from then."""
    app = Celery("made up", set_as_current=False)
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": every_s} for name, every_s in (("crawl", 30.0), ("forget", 3_600.0))
    }
    now = datetime.fromtimestamp(NOW, UTC)
    # Of every app: an entry read from the file goes by the current one.
    monkeypatch.setattr(Celery, "now", lambda self: now)

    class Noting(Scheduler):
        producer = None  # so that nothing is connected to

        def apply_entry(self, entry: Any, producer: Any = None) -> None:
            ran.append(entry.task)

    def run(scheduler: Scheduler) -> list[str]:
        ran.clear()
        for _ in range(10):
            scheduler.tick()
        return sorted(ran)

    ran: list[str] = []
    for restarted in (False, True):
        now = datetime.fromtimestamp(NOW, UTC)
        path = str(tmp_path / f"schedule-{restarted}")
        scheduler = Noting(app=app, schedule_filename=path)
        assert "forget" not in run(scheduler)
        now += timedelta(days=100)
        assert {"crawl", "forget"} <= set(run(scheduler))
        now -= timedelta(days=100)
        if restarted:
            scheduler.close()
            scheduler = Noting(app=app, schedule_filename=path)
        run(scheduler)
        now += timedelta(seconds=31)
        assert "crawl" in run(scheduler)
        now += timedelta(seconds=3_600)
        assert {"crawl", "forget"} <= set(run(scheduler))
        scheduler.close()
