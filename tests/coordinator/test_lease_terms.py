"""The terms of a lease, without a database: what the coordinator and the simulator both go by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.lease_terms import (
    LEAST_LOADING_LIMIT_S,
    LOADING_LIFE,
    LONGEST_LOAD_S,
    OFFER_LIFE,
    PATIENCE_S,
    STALLED_AFTER_S,
    End,
    Held,
    accepted,
    end_of,
    offered,
    patience_s,
    promised,
    reloads,
    renewed,
)
from swarm.placement import Promise, find_holes
from swarm.snapshot import LOADING_LIMIT_S
from swarm.wire.spans import Span
from tests.swarms import model, peer_id, server

OFFER = offered("p", Span(4, 8), Span(0, 4), 1000.0)


def end(held: object, now: float, seen: Span | None = None, seen_at: float | None = None) -> End | None:
    found = end_of(held, seen, now if seen_at is None else seen_at, now)  # type: ignore[arg-type]
    return found[0] if found else None


def test_an_offer_lapses_after_its_time_and_an_accepted_lease_after_the_last_sign() -> None:
    assert end(OFFER, 1000 + OFFER_LIFE.total_seconds() - 1) is None
    assert end_of(OFFER, None, 0, 1000 + OFFER_LIFE.total_seconds()) == (End.EXPIRED, "not accepted in time")
    taken = accepted(OFFER, 1010.0)
    assert end(taken, 1010 + LOADING_LIFE.total_seconds() - 1) is None
    silent = end_of(taken, None, 0, 1010 + LOADING_LIFE.total_seconds())
    assert silent == (End.EXPIRED, "no sign of the server before the lease ran out")
    assert accepted(taken, 1020.0).deadline_at == taken.deadline_at, "accepting twice gives no more time"


def test_to_accept_again_and_again_is_no_sign_of_progress_and_gives_no_time_past_the_deadline() -> None:
    held = accepted(OFFER, 1010.0)
    assert accepted(held, 1100.0).progressed_at == 1010.0
    begun_anew = accepted(renewed(held, 1100.0, 0.3), 1150.0)
    assert (begun_anew.progressed_at, begun_anew.progress) == (1150.0, 0.0), "what it had loaded is gone"
    assert held.deadline_at is not None
    assert accepted(held, held.deadline_at - 1.0).expires_at == held.deadline_at


def test_it_ends_when_the_server_is_seen_there_or_elsewhere_and_not_before_anybody_looked() -> None:
    taken = accepted(OFFER, 1010.0)
    assert end(taken, 1050, Span(4, 8)) is End.DONE and end(taken, 1050, Span(2, 9)) is End.DONE
    assert end(taken, 1050, Span(8, 12)) is End.STALE
    assert end(taken, 1050, Span(0, 4)) is None, "it is still where it was"
    assert end(taken, 1050, Span(6, 8)) is None, "some of its blocks could not be read"
    assert end(taken, 1050, Span(4, 8), seen_at=999.0) is None, "that was before the lease"


def test_a_lease_from_before_the_clock_was_set_back_ends_and_holds_its_blocks_no_longer() -> None:
    taken = accepted(OFFER, 1010.0)
    assert end(taken, 950) is None, "another machine's clock"
    assert end_of(taken, None, 0, 900.0) == (End.STALE, "the coordinator's clock was set back")


@given(st.lists(st.floats(0.0, 170.0), max_size=80), st.floats(0.0, 20_000.0))
def test_without_progress_a_lease_ends_by_its_first_deadline(gaps: list[float], cost_s: float) -> None:
    held, now = accepted(OFFER, 1010.0, cost_s), 1010.0
    for gap in gaps:
        now += gap
        held = renewed(held, now)
    assert held.deadline_at is not None and held.expires_at <= held.deadline_at
    assert LEAST_LOADING_LIMIT_S <= held.deadline_at - 1010.0 <= 7200.0
    assert end(held, held.deadline_at) is End.EXPIRED


@given(st.lists(st.tuples(st.floats(0.0, 1_000.0), st.floats(0.0, 1.0)), max_size=80), st.floats(0.0, 20_000.0))
def test_whatever_is_reported_no_lease_stands_for_longer_than_half_a_day(
    reports: list[tuple[float, float]], cost_s: float
) -> None:
    held, now = accepted(OFFER, 1010.0, cost_s), 1010.0
    for gap, progress in reports:
        now += gap
        held = renewed(held, now, progress)
    assert held.deadline_at is not None and held.expires_at <= held.deadline_at <= 1010.0 + LONGEST_LOAD_S
    assert end(held, 1010.0 + LONGEST_LOAD_S) is End.EXPIRED


@pytest.mark.parametrize("hours", [1, 3, 11])
def test_a_download_of_hours_stands_while_it_is_on_course(hours: int) -> None:
    held, now = accepted(OFFER, 1010.0), 1010.0
    until = 1010.0 + 3_600.0 * hours
    while now < until:
        now += 60.0
        held = renewed(held, now, (now - 1010.0) / (until - 1010.0))
        assert end(held, now) is None
    assert end(held, now + 30.0, Span(4, 8)) is End.DONE


@pytest.mark.parametrize("per_minute", [1e-6, 1 / 900])
def test_who_would_take_longer_than_half_a_day_has_half_an_hour(per_minute: float) -> None:
    held, now, minutes = accepted(OFFER, 1010.0), 1010.0, 0
    while end(held, now) is None:
        now, minutes = now + 60.0, minutes + 1
        held = renewed(held, now, minutes * per_minute)
    assert now == 1010.0 + LEAST_LOADING_LIMIT_S
    assert end_of(held, None, 0, now) == (End.EXPIRED, "not online by the deadline")


def test_who_falls_behind_has_half_an_hour_from_the_last_report_that_was_on_course() -> None:
    """A tenth in an hour is on course for twelve times as long as it took, however little comes after it."""
    held, now = accepted(OFFER, 1010.0), 1010.0
    last_on_course = 1010.0 + 0.1 * LONGEST_LOAD_S
    while end(held, now) is None:
        now += 60.0
        held = renewed(held, now, 0.1 + (now - 1010.0) / 1e9)
    assert last_on_course <= now <= last_on_course + LEAST_LOADING_LIMIT_S + 120.0


def test_what_has_run_out_is_not_renewed() -> None:
    assert renewed(OFFER, 1001.0) == OFFER, "an offer is accepted, not renewed"
    taken = accepted(OFFER, 1010.0)
    assert renewed(taken, 1010 + LOADING_LIFE.total_seconds()) == taken


def test_signs_of_life_without_progress_are_not_enough() -> None:
    held, now = accepted(OFFER, 1010.0), 1010.0
    while now < 1010.0 + STALLED_AFTER_S - 120.0:
        now += 120.0
        held = renewed(held, now)
        assert end(held, now) is None
    stalled = end_of(held, None, 0, 1010.0 + STALLED_AFTER_S)
    assert stalled == (End.EXPIRED, "no progress for 10 minutes")
    moving = renewed(held, now, 0.1)
    assert moving.progressed_at == now and end(replace(moving, expires_at=now + 900.0), 1010.0 + STALLED_AFTER_S) is None
    assert renewed(moving, now + 60.0, 0.05).progressed_at == now, "less than before is no progress"


# ------------------------------------------------------------------------------------------ for how long others are kept away

DARK = model(8, server("a", 0, 4), server("b", 0, 4), server("c", 0, 4))
"""Nobody has blocks 4 to 7."""


def going(name: str, turn: int = 0, cost_s: float | None = None) -> Held:
    return accepted(offered(peer_id(name), Span(4, 8), Span(0, 4), 1000.0, turn), 1000.0, cost_s)


@given(st.floats(0.0, 50_000.0), st.sampled_from([None, 300.0, 86_400.0]), st.lists(st.floats(0.0, 1.0), max_size=5))
def test_a_promise_keeps_others_from_a_hole_for_ten_minutes_whatever_is_said(
    after: float, cost_s: float | None, reports: list[float]
) -> None:
    held = going("a", cost_s=cost_s)
    for progress in reports:
        held = renewed(held, 1000.0 + after, progress)
    promises = promised([held], DARK, 1000.0 + after)
    assert promises == (Promise(peer_id("a"), Span(4, 8), slow=after >= PATIENCE_S),)
    assert find_holes(DARK, promises) == ((Span(4, 8),) if after >= PATIENCE_S else ())


def test_each_further_server_on_its_way_has_three_times_as_long_up_to_an_hour_and_a_half() -> None:
    assert [patience_s(turn) / 60 for turn in (0, 1, 2, 3, 100)] == [10, 30, 90, 90, 90]
    first, second = going("a"), going("b", turn=1)
    assert find_holes(DARK, promised([first, second], DARK, 1000.0 + patience_s(1) - 1.0)) == ()
    assert find_holes(DARK, promised([first, second], DARK, 1000.0 + patience_s(1))) == (Span(4, 8),)


def test_where_loads_took_longer_lately_the_first_has_half_as_long_again_and_never_more_than_an_hour_and_a_half() -> None:
    assert [patience_s(0, usual_s) / 60 for usual_s in (0.0, 240.0, 1_200.0, 1e6)] == [10, 10, 30, 90]
    assert [patience_s(turn, 1_200.0) / 60 for turn in (1, 2)] == [90, 90]


@pytest.mark.parametrize(("cost_s", "limit_s"), [(None, 1_800.0), (1_500.0, 3_000.0), (86_400.0, 7_200.0)])
def test_where_another_server_is_online_a_promise_counts_for_two_hours_and_as_a_reload_for_as_long_as_it_was_to_take(
    cost_s: float | None, limit_s: float
) -> None:
    covered, held = model(8, *DARK.servers, server("e", 4, 8)), going("a", cost_s=cost_s)
    assert reloads(held, 1000.0 + limit_s - 1.0) and not reloads(held, 1000.0 + limit_s)
    assert not promised([held], covered, 1000.0 + LOADING_LIMIT_S - 1.0)[0].slow
    assert promised([held], covered, 1000.0 + LOADING_LIMIT_S)[0].slow


def test_who_is_on_the_way_itself_is_no_server_that_is_online() -> None:
    """The snapshot still shows it where it was, and its blocks there overlap those that it goes to."""
    shown = model(8, server("a", 2, 6), server("b", 0, 4))
    (promise,) = promised([going("a")], shown, 1000.0 + PATIENCE_S)
    assert promise.slow
