"""The terms of a lease, without a database: what the coordinator and the simulator both go by."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coordinator.lease_terms import (
    LEAST_LOADING_LIMIT_S,
    LOADING_LIFE,
    OFFER_LIFE,
    STALLED_AFTER_S,
    End,
    accepted,
    end_of,
    offered,
    renewed,
)
from swarm.wire.spans import Span

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
def test_whatever_is_reported_a_lease_ends_by_its_deadline(gaps: list[float], cost_s: float) -> None:
    held, now = accepted(OFFER, 1010.0, cost_s), 1010.0
    for gap in gaps:
        now += gap
        held = renewed(held, now)
    assert held.deadline_at is not None and held.expires_at <= held.deadline_at
    assert LEAST_LOADING_LIMIT_S <= held.deadline_at - 1010.0 <= 7200.0
    assert end(held, held.deadline_at) is End.EXPIRED


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
    moving = renewed(held, now, progressed=True)
    assert moving.progressed_at == now and end(replace(moving, expires_at=now + 900.0), 1010.0 + STALLED_AFTER_S) is None
