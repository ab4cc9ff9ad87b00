"""From crawls to events and counters: once each, in order, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor import queries
from monitor.feeds import publish
from monitor.feeds.events import since
from monitor.feeds.models import CrawlTally, Event
from monitor.hiding.models import Hidden
from monitor.store import store
from tests.monitor.seeding import NOW, SWARM, failure, report, seed
from tests.monitor.test_incidents import torn, whole
from tests.swarms import peer_id

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moment at which is read."""
    moment = [NOW]
    monkeypatch.setattr(queries.time, "time", lambda: moment[0])
    return moment


def crawled(at: list[float], when: float, make: object) -> None:
    seed(make(when), at=when)  # type: ignore[operator]
    at[0] = when
    publish.publish(SWARM)


def test_a_loss_is_told_as_snapshot_block_and_incident_and_then_its_end(at: list[float]) -> None:
    for after, make in ((0, whole), (30, torn), (60, torn), (90, whole)):
        crawled(at, NOW + after, make)
    told = [(event.kind, event.data) for event in Event.objects.order_by("id")]
    assert [kind for kind, _ in told] == [
        "snapshot", "snapshot", "block", "block", "snapshot", "incident", "snapshot", "block", "block", "incident",
    ]  # fmt: skip
    assert told[3][1] == {"model": "tiny-hf", "start": 3, "end": 4, "from": 3, "to": 0, "at": "2026-09-21T14:13:50Z"}
    assert told[5][1]["change"] == "opened" and told[9][1]["change"] == "closed"
    assert told[1][1]["models"][0]["verdict"] == "broken"


def test_publishing_again_says_nothing_new_and_reads_no_swarm(at: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    crawled(at, NOW, whole)
    monkeypatch.setattr(queries, "watch", None)
    assert publish.publish(SWARM) == 0


def test_a_crawl_that_is_held_back_makes_the_stream_stale(at: list[float]) -> None:
    crawled(at, NOW, whole)
    store(replace(report(NOW + 30, torn(NOW + 30)), held="hard to believe", suspicion="mass-loss"))
    at[0] = NOW + 31
    assert publish.publish(SWARM) == 1 and publish.publish(SWARM) == 0
    assert Event.objects.latest("id").data["stale"] is True


def test_going_blind_is_told_once(at: list[float]) -> None:
    crawled(at, NOW, whole)
    at[0] = NOW + 91
    assert publish.publish(SWARM) == 1 and publish.publish(SWARM) == 0
    last = Event.objects.latest("id")
    assert last.kind == "snapshot" and last.data["stale"] is True
    assert last.data["models"][0]["servers_online"] is None, "unknown is not zero"


def test_after_blindness_blocks_are_compared_with_what_was_seen_last(at: list[float]) -> None:
    crawled(at, NOW, whole)
    at[0] = NOW + 200
    publish.publish(SWARM)
    crawled(at, NOW + 210, torn)
    assert Event.objects.filter(kind="block").count() == 2


def test_who_is_hidden_since_is_not_told_again(at: list[float]) -> None:
    for after, make in ((0, whole), (30, torn), (60, torn)):
        crawled(at, NOW + after, make)
    assert peer_id("c") in str(since(SWARM, 0))
    Hidden.objects.create(kind="peer", value=peer_id("c"))
    assert peer_id("c") not in str(since(SWARM, 0)) and "hidden-" in str(since(SWARM, 0))


def test_only_so_many_events_are_kept_and_who_missed_more_is_told_so(at: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "KEPT", 3)
    for after in range(6):
        crawled(at, NOW + after, whole)
    first, *_, last = Event.objects.order_by("id").values_list("id", flat=True)
    assert Event.objects.count() == 3
    assert since(SWARM, first - 1) is None
    assert [number for number, _, _ in since(SWARM, first) or []] == [first + 1, last]
    assert since(SWARM, last) == []


def test_each_crawl_is_counted_once_by_outcome_and_duration(at: list[float]) -> None:
    seed(whole(NOW), at=NOW)
    store(failure(NOW + 30))
    publish.publish(SWARM)
    publish.publish(SWARM)
    tally = CrawlTally.objects.get(swarm=SWARM)
    assert (tally.succeeded, tally.failed, tally.held, tally.seconds) == (1, 1, 0, 4.0)
    assert sum(tally.buckets) == 2 and tally.buckets[publish.BUCKETS_S.index(2.5)] == 2
