"""A size that nobody has named is "at least", wherever it is shown, and is neither "runs" nor downtime anywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from coordinator.desk.replay import replayed
from monitor import queries
from monitor.alerts.conditions import Look, Wish, finding
from monitor.alerts.rules import Topic
from monitor.history import rollups, uptime
from monitor.history.minutes import moment
from monitor.models import Crawl, WatchedModel
from monitor.serving import client_route
from monitor.store import store
from swarm.coverage import coverage
from swarm.snapshot import Model
from tests.monitor.seeding import NOW, SWARM, online, report, seed, unreachable
from tests.swarms import model

pytestmark = pytest.mark.django_db
WORDS = "at least 3 blocks seen; how many the model has is not known"


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)


def at_least() -> Model:
    return replace(model(3, online("a", 0, 3), online("b", 0, 3)), at_least=True)


def test_a_size_that_nobody_named_comes_back_from_the_database() -> None:
    seed(at_least())
    seen = queries.latest_snapshot(SWARM)
    assert seen is not None and seen.snapshot.models[0].at_least
    seed(replace(at_least(), at_least=False), at=NOW + 1)
    seen = queries.latest_snapshot(SWARM)
    assert seen is not None and not seen.snapshot.models[0].at_least


def test_page_overview_json_badge_and_metrics_say_that_it_is_not_known(client: Client) -> None:
    seed(at_least())
    for path in ("/m/tiny-hf", "/"):
        html = client.get(path).content.decode()
        assert f"unknown — {WORDS}" in html and "at least 3 blocks" in html and "All 3 blocks are served" not in html
        assert "finds a way" not in html and "Nothing is missing" not in html
    told = client.get("/api/v1/models/tiny-hf").json()
    assert (told["verdict"], told["sentence"], told["size_known"]) == ("unknown", f"unknown: {WORDS}", False)
    assert told["route"]["exists"] is None and told["min_redundancy"] is None
    assert "unknown" in client.get("/badge/tiny-hf.svg").content.decode()
    metrics = client.get("/metrics").content.decode()
    assert 'swarm_model_complete{model="tiny-hf"}' not in metrics and 'blocks_online_min{model="tiny-hf"}' not in metrics


def test_a_hole_in_what_was_seen_is_one_however_large_the_model_is(client: Client) -> None:
    seed(replace(model(3, online("a", 0, 2), unreachable("b", 2, 3)), at_least=True))
    assert client.get("/api/v1/models/tiny-hf").json()["verdict"] == "broken"


def test_its_minutes_are_unknown_and_neither_up_nor_down() -> None:
    start = NOW // 60 * 60
    for minute in range(3):
        store(report(start + 60 * minute, at_least()))
    rollups.roll_up(moment(start + 180))
    tally = uptime.total(uptime.model_days(SWARM, start + 180)["tiny-hf"])
    assert (tally.broken, tally.thin, tally.known) == (0, 0, 0) and tally.unknown == tally.watched > 0
    row = WatchedModel.objects.get()
    assert all(block.known for block in uptime.block_tallies(row.pk, 3, start + 180)), "of its blocks we do know"


@pytest.mark.parametrize("wish", [Wish(Topic.MODEL, "tiny-hf"), Wish(Topic.REDUNDANCY, "tiny-hf", target=2)])
def test_no_alarm_ends_because_of_it(wish: Wish) -> None:
    seed(at_least())
    assert finding(wish, Look(queries.watch(SWARM))).bad is None
    seed(replace(at_least(), at_least=False), at=NOW + 1)
    assert finding(wish, Look(queries.watch(SWARM))).bad is False


def test_no_client_is_promised_a_way_through_blocks_that_nobody_counted() -> None:
    route = client_route(at_least())
    assert route.unknown and not route.exists


def test_a_replay_of_the_minute_knows_no_more_than_was_known() -> None:
    seed(at_least())
    shown = replayed(Crawl.objects.get(), 30.0)
    assert shown is not None and shown.seen.published is not None
    (then,) = shown.seen.published.snapshot.models
    assert then.at_least and not then.unread_blocks and coverage(then).sentence() == f"unknown: {WORDS}"
