"""The monitor's clock is set back, or forward: what is shown is what was seen last, and nobody's loss is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries, rounds, scrape, views
from monitor.api import sight
from monitor.history.models import Incident
from monitor.history.record import watch_the_clock
from monitor.models import Crawl, ServerRow
from monitor.published import Published
from monitor.store import store
from swarm.snapshot import Model, PeerState
from tests.monitor.seeding import NOW, SWARM, failure, online, report, seed
from tests.monitor.test_rounds import MadeUpCrawler
from tests.swarms import model

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


def test_after_it_was_put_forward_a_crawl_that_sees_everybody_counts(clock: SetClock) -> None:
    seed(whole(NOW))
    later = NOW + HOUR_S
    clock(later + 1)
    assert published().stale, "nothing newer was seen yet"
    rounds.run(SWARM, MadeUpCrawler(report(later, whole(later))))
    assert not published().stale and not Incident.objects.filter(kind="hole").exists()
