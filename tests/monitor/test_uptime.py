"""Uptime is what a plain recount of the crawls says; what nobody saw counts for nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from monitor.history import uptime
from monitor.models import WatchedModel
from monitor.store import store
from tests.monitor.recounting import compare, roll_up
from tests.monitor.seeding import NOW, SWARM, failure, online, seed, unreachable
from tests.monitor.traces import Look, traces
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db
MINUTE = NOW // 60 * 60


def tally(at: float) -> uptime.Tally:
    roll_up(at)
    return uptime.total(uptime.model_days(SWARM, at)["tiny-hf"])


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(traces)
def test_uptime_of_model_blocks_and_servers_is_what_a_recount_says(trace: list[Look]) -> None:
    compare(trace, interval_s=60)


def test_a_failed_crawl_is_no_downtime() -> None:
    seed(model(4, online("a", 0, 4), online("b", 0, 4)), at=MINUTE)
    for after in range(1, 60):
        store(failure(MINUTE + 60 * after))
    seed(model(4, online("a", 0, 4), online("b", 0, 4)), at=MINUTE + 3_600)
    assert tally(MINUTE + 3_600) == uptime.Tally(watched=2)


def test_no_crawl_at_all_is_no_downtime_even_of_a_broken_model() -> None:
    seed(model(4, online("a", 0, 2)), at=MINUTE)
    seed(model(4, online("a", 0, 2)), at=MINUTE + 7_200)
    assert tally(MINUTE + 7_200) == uptime.Tally(watched=2, broken=2)


def test_a_minute_seen_twice_counts_by_the_worse_look() -> None:
    whole = model(2, online("a", 0, 2), online("b", 0, 2))
    seed(whole, at=MINUTE + 5)
    seed(model(2, online("a", 0, 2), unreachable("b", 0, 2)), at=MINUTE + 30)
    seed(whole, at=MINUTE + 55)
    assert tally(MINUTE + 55) == uptime.Tally(watched=1, thin=1)
    row = WatchedModel.objects.get()
    assert uptime.peer_uptime(row.pk, peer_id("a"), MINUTE + 55) == uptime.PeerUptime(1, 1)
    assert uptime.peer_uptime(row.pk, peer_id("b"), MINUTE + 55) == uptime.PeerUptime(0, 1)


def test_a_block_that_one_of_two_looks_could_read_is_known() -> None:
    for whole_first in (True, False):
        start = MINUTE + (0 if whole_first else 600)
        unread = model(2, online("a", 0, 1), online("b", 0, 1), unread=frozenset({1}))
        looks = [model(2, online("a", 0, 2), online("b", 0, 2)), unread]
        for after, look in zip((5, 35), looks if whole_first else reversed(looks), strict=True):
            seed(look, at=start + after)
    assert tally(MINUTE + 700) == uptime.Tally(watched=2)
    seed(unread, at=MINUTE + 900)
    assert tally(MINUTE + 900) == uptime.Tally(watched=3, unknown=1)


def test_with_long_intervals_the_minutes_between_two_crawls_in_a_row_are_watched(settings) -> None:  # type: ignore[no-untyped-def]
    settings.SEPAL_CRAWL_INTERVAL_S = 300.0
    seed(model(2, online("a", 0, 2)), at=MINUTE)
    seed(model(2, online("a", 0, 2)), at=MINUTE + 310)
    assert tally(MINUTE + 310) == uptime.Tally(watched=6, thin=6)
    store(failure(MINUTE + 500))
    seed(model(2, online("a", 0, 2)), at=MINUTE + 610)
    assert tally(MINUTE + 610) == uptime.Tally(watched=7, thin=7)


def test_nothing_known_is_neither_up_nor_down() -> None:
    assert uptime.Tally().share_up is None
    assert uptime.Tally(watched=10, unknown=10).share_up is None
    assert uptime.Tally(watched=10, unknown=2, broken=4).share_up == 0.5
    assert uptime.peer_uptime(1, peer_id("nobody"), NOW) is None
    assert uptime.swarm_watched(SWARM, NOW) == (0, 0)


def test_a_block_that_a_second_look_could_read_after_the_roll_up_is_no_longer_unread() -> None:
    seed(model(2, online("a", 0, 1), online("b", 0, 1), unread=frozenset({1})), at=MINUTE + 5)
    roll_up(MINUTE + 10)
    seed(model(2, online("a", 0, 2), online("b", 0, 2)), at=MINUTE + 35)
    assert tally(MINUTE + 40) == uptime.Tally(watched=1)
    assert [block.unknown for block in uptime.block_tallies(WatchedModel.objects.get().pk, 2, MINUTE + 40)] == [0, 0]


def test_a_minute_that_was_seen_before_the_clock_went_back_is_not_bridged(settings) -> None:  # type: ignore[no-untyped-def]
    settings.SEPAL_CRAWL_INTERVAL_S = 60.0
    nobody, whole = model(2), model(2, online("a", 0, 2), online("b", 0, 2))
    seed(nobody, at=MINUTE + 60)
    seed(nobody, at=MINUTE + 120)
    seed(whole, at=MINUTE + 50)
    seed(nobody, at=MINUTE + 125)
    assert tally(MINUTE + 125) == uptime.Tally(watched=3, broken=2)
    assert uptime.peer_uptime(WatchedModel.objects.get().pk, peer_id("a"), MINUTE + 125) == uptime.PeerUptime(1, 3)
