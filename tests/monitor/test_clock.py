"""The monitor's clock is set back, or forward: what is shown is what was seen last, and nobody's loss is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from monitor import queries, rounds, scrape, views
from monitor.api import sight
from monitor.crawl import CrawlReport
from monitor.history import rollups, uptime
from monitor.history.minutes import moment
from monitor.history.models import Incident, PeerDay
from monitor.history.record import watch_the_clock
from monitor.models import Crawl, ServerRow, WatchedModel
from monitor.published import Published
from monitor.store import store
from swarm.snapshot import Model, PeerState
from tests.monitor.seeding import NOW, SWARM, failure, online, report, seed, unreachable
from tests.monitor.test_rounds import MadeUpCrawler
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

HOUR_S = 3_600.0
SetClock = Callable[[float], None]


def whole(at: float) -> Model:
    return model(4, online("a", 0, 4, at=at), online("b", 0, 4, at=at), online("c", 0, 4, at=at))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    def set_to(now: float) -> None:
        monkeypatch.setattr(queries.time, "time", lambda: now)

    assert queries.time is rounds.time is sight.time is scrape.time is views.time
    set_to(NOW)
    return set_to


def published() -> Published:
    found = queries.watch(SWARM).published
    assert found is not None
    return found


@pytest.mark.parametrize("back_s", [10.0, 300.0, HOUR_S, 30 * 24 * HOUR_S])
def test_after_it_was_set_back_the_next_crawl_counts_and_nobody_is_missed(
    client: Client, clock: SetClock, back_s: float
) -> None:
    seed(whole(NOW))
    then = NOW - back_s
    clock(then + 2)
    crawler = MadeUpCrawler(report(then, whole(then)), report(then + 30, whole(then + 30)))
    for _ in range(2):
        stored = rounds.run(SWARM, crawler)
        assert stored is not None and stored.outcome == "succeeded" and crawler.looked_again == 0
    clock(then + 32)
    found = published()
    assert found.snapshot.at == then + 30 and not found.stale and found.age_s() == 2
    (only,) = found.snapshot.models
    assert [server.state for server in only.servers] == [PeerState.ONLINE] * 3 and not found.absent["tiny-hf"]
    (told,) = client.get("/api/v1/models").json()["items"]
    assert (told["verdict"], told["stale"]) == ("complete", False)
    page = client.get("/m/tiny-hf").content.decode()
    assert "set back" not in page and "No model has been announced" not in client.get("/").content.decode()
    assert queries.newest_crawls(SWARM)[0] == found.snapshot_id == Crawl.objects.order_by("-pk")[0].pk
    row = ServerRow.objects.first()
    assert row is not None and max(row.first_seen, row.state_since, row.last_seen).timestamp() <= then + 30
    assert not Incident.objects.exists()


def test_until_the_next_crawl_what_is_dated_ahead_is_of_an_age_that_nobody_knows(client: Client, clock: SetClock) -> None:
    seed(whole(NOW))
    clock(NOW - HOUR_S)
    found = published()
    assert found.stale and found.late
    (told,) = client.get("/api/v1/models").json()["items"]
    assert (told["verdict"], told["stale"]) == ("unknown", True)
    page = client.get("/m/tiny-hf").content.decode()
    assert "This monitor's clock was set back: the last check is dated 1 h ahead" in page.replace("&#x27;", "'")
    assert "Checked <time" not in page and "cannot run:" not in page
    assert client.get("/metrics").content.decode().count("swarm_model_complete{") == 0
    fresh = client.get("/fresh")
    assert fresh.status_code == 503 and b"dated 1 h ahead: the clock was set back" in fresh.content
    assert "dated 1 h ahead" in client.get("/readyz").content.decode()
    status = client.get("/api/v2/summary.json").json()["status"]
    assert "before the clock was set back" in status["description"]


def test_two_machines_clocks_may_differ_a_little(clock: SetClock) -> None:
    seed(whole(NOW))
    clock(NOW - 5)
    assert not published().stale


def test_a_crawl_that_fails_after_it_was_set_back_is_told_and_opens_no_downtime(client: Client, clock: SetClock) -> None:
    seed(whole(NOW))
    then = NOW - HOUR_S
    clock(then + 10)
    store(failure(then))
    seen = queries.watch(SWARM)
    assert seen.last_crawl is not None and seen.last_crawl.failure and seen.failing_since == then - 1
    assert not seen.sees and seen.published is not None and seen.published.snapshot.at == NOW
    watch_the_clock(SWARM, then + 10)
    assert not Incident.objects.exists()


def test_a_loss_seen_before_it_was_set_back_confirms_nothing(clock: SetClock) -> None:
    """How long ago that was nobody knows; a second look of its own is needed."""
    seed(whole(NOW))
    crawler = MadeUpCrawler(report(NOW + 61, model(4)), report(NOW - HOUR_S + 30, model(4)))
    rounds.run(SWARM, crawler)
    held = queries.held_back(SWARM)
    assert held is not None and held.at == NOW + 60
    clock(NOW - HOUR_S + 31)
    stored = rounds.run(SWARM, crawler)
    assert stored is not None and stored.outcome == "held"
    assert published().stale and published().snapshot.models[0].servers


def test_a_crawl_during_which_it_was_set_back_is_stored(clock: SetClock) -> None:
    seed(whole(NOW))
    then = NOW - HOUR_S
    clock(then + 2)
    stored = store(replace(report(then, whole(then)), started_at=NOW + 29))
    assert stored.started_at == stored.finished_at and published().snapshot.at == then


def torn(at: float) -> Model:
    return model(4, online("a", 0, 2, at=at), unreachable("b", 0, 4, at=at), unreachable("c", 0, 4, at=at))


MINUTE = NOW // 60 * 60


@pytest.mark.parametrize("step_s", [-300.0, -HOUR_S, HOUR_S], ids=["back 5 min", "back 1 h", "forward 1 h"])
def test_what_is_seen_after_a_step_is_neither_lost_nor_counted_twice(step_s: float) -> None:
    """Ten minutes in which all is well, the step, then a minute of that, two with a hole, and five of all well again."""
    before = [MINUTE + 30 * look for look in range(20)]
    after = [before[-1] + step_s + 30 * look for look in range(1, 17)]
    bad = after[2:6]
    looks = [(at, whole) for at in before] + [(at, torn if at in bad else whole) for at in after]
    for at, as_it_was in looks:
        store(report(at, as_it_was(at)))
        rollups.roll_up(moment(at))
    minutes = {at // 60 for at in (*before, *after)}
    broken = {at // 60 for at in bad}
    now = max(*before, *after)
    (row,) = WatchedModel.objects.all()
    days = uptime.total(uptime.model_days(SWARM, now)["tiny-hf"])
    assert (days.watched, days.broken) == (len(minutes), len(broken))
    assert uptime.swarm_watched(SWARM, now)[0] == len(minutes)
    found = uptime.peer_uptime(row.pk, peer_id("b"), now)
    assert found is not None and (found.up, found.known) == (len(minutes - broken), len(minutes))
    held = sum(sum(day.block_minutes) for day in PeerDay.objects.filter(peer__peer_id=peer_id("b")))
    assert held == 4 * len(minutes - broken)
    (hole,) = Incident.objects.filter(kind="hole")
    assert hole.started_before == moment(min(bad)) and hole.ended_before == moment(max(bad) + 30)
    assert hole.started_after == moment(min(bad) - 30), "the look before is the one after the step"
    how = {peer_id("a"): "moved to other blocks", **dict.fromkeys((peer_id("b"), peer_id("c")), "stopped answering")}
    assert {entry["peer_id"]: entry["how"] for entry in hole.left} == how
    assert {entry["peer_id"] for entry in hole.restored} == set(how)
    # Put forward, it skips an hour that nobody watched; that is told, and is no downtime.
    assert Incident.objects.filter(kind="blind").count() == (1 if step_s > 0 else 0)


@pytest.mark.parametrize("saw", [True, False])
def test_what_is_not_over_when_it_is_set_back_is_not_forgotten(saw: bool) -> None:
    seed(whole(NOW))
    watch_the_clock(SWARM, NOW + 120)
    hour_before = NOW - HOUR_S
    store(report(hour_before, whole(hour_before)) if saw else failure(hour_before))
    (blind,) = Incident.objects.all()
    assert blind.kind == "blind" and (blind.ended_before is not None) is saw


def test_a_round_that_is_not_over_keeps_the_next_one_from_being_stored_before_it() -> None:
    class Impatient(MadeUpCrawler):
        def crawl(self, *given: Any) -> CrawlReport | None:
            assert rounds.run(SWARM, MadeUpCrawler(report(NOW + 30, whole(NOW + 30)))) is None
            assert rounds.run("other", MadeUpCrawler(report(NOW, whole(NOW), swarm="other"))) is not None
            return super().crawl(*given)

    for _ in range(2):
        assert rounds.run(SWARM, Impatient(report(NOW, whole(NOW)))) is not None
    assert Crawl.objects.of(SWARM).count() == 2


def test_after_it_was_put_forward_a_crawl_that_sees_everybody_counts(clock: SetClock) -> None:
    seed(whole(NOW))
    later = NOW + HOUR_S
    clock(later + 1)
    assert published().stale, "nothing newer was seen yet"
    rounds.run(SWARM, MadeUpCrawler(report(later, whole(later))))
    assert not published().stale and not Incident.objects.filter(kind="hole").exists()
