"""What a client takes down of its servers: counts as they are, rates that are rather too high, and nothing that may be its own
fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserver.client.notes import Notes
from swarm.throughput import WINDOW_ROUND_TRIPS, Pass, rate_of_pass
from swarm.wire.reports import LEAST_TOKENS, MOST_SERVERS
from tests.swarms import peer_id

A, B, C = (peer_id(name) for name in "abc")


def one(seconds: float, tokens: int = 100, round_trip_s: float = 0.0) -> Pass:
    return Pass(tokens, blocks=4, served=4, seconds=seconds, round_trip_s=round_trip_s)


def told(notes: Notes) -> dict[str, float | None]:
    return {server.peer_id: server.tokens_per_s for server in notes.take()}


def test_requests_and_failures_are_counted_and_told_once() -> None:
    notes = Notes()
    for _ in range(3):
        notes.worked(A)
    notes.failed(A, "gone \u202e away\n" + "x" * 500)
    notes.worked(B)
    first, second = notes.take()
    assert (first.peer_id, first.requests, first.failures) == (A, 4, 1)
    assert first.last_error.startswith("gone away x") and len(first.last_error) == 200
    assert (second.peer_id, second.requests, second.failures, second.tokens_per_s) == (B, 1, 0, None)
    assert notes.take() == []


def test_where_nothing_worked_at_all_it_may_be_us_and_nobody_is_blamed() -> None:
    notes = Notes()
    notes.failed(A, "cannot be reached")
    notes.failed(B, "cannot be reached")
    assert notes.take() == []
    notes.worked(A)
    notes.failed(B, "cannot be reached")
    assert {server.peer_id: server.failures for server in notes.take()} == {A: 0, B: 1}


def test_what_failed_because_of_our_own_peer_is_not_told() -> None:
    notes = Notes()
    for _ in range(2):
        notes.worked(A)
        notes.failed(B, "cannot be reached")
        notes.failed(A, "cannot be reached")
    notes.it_was_us()
    (only,) = notes.take()
    assert (only.peer_id, only.requests, only.failures, only.last_error) == (A, 2, 0, "")


def test_a_server_is_slow_by_what_it_takes_beyond_the_quickest_pass_of_this_client() -> None:
    notes = Notes()
    for peer, seconds in ((A, 0.1), (B, 0.6)):
        notes.worked(peer)
        notes.timed(peer, one(seconds))
    rates = told(notes)
    assert rates[A] is None, "it is as quick as our line, as far as anyone can tell"
    assert rates[B] == pytest.approx(rate_of_pass(one(0.6), 0.001)) == pytest.approx(2 * 100 * 4 / 0.5 * 1.32 / 5)
    notes.worked(B)
    notes.timed(B, one(0.6))
    assert told(notes)[B] == pytest.approx(rates[B]), "the line stays known"


def test_the_longest_pass_counts_and_short_ones_do_not() -> None:
    notes = Notes()
    notes.timed(A, one(0.01, 1000))
    for seconds, tokens in ((9.0, LEAST_TOKENS - 1), (2.0, 100), (5.0, 200), (4.0, 200), (8.0, 150)):
        notes.worked(B)
        notes.timed(B, one(seconds, tokens))
    assert told(notes)[B] == rate_of_pass(one(4.0, 200), 0.00001)


def test_far_away_is_not_slow() -> None:
    assert rate_of_pass(one(0.5, round_trip_s=0.1), 0.0) is None
    near, far = rate_of_pass(one(0.5), 0.0), rate_of_pass(one(0.5 + WINDOW_ROUND_TRIPS * 0.2, round_trip_s=0.2), 0.0)
    assert near is not None and far == pytest.approx(near)


@given(st.integers(LEAST_TOKENS, 2_000), st.integers(1, 80), st.floats(1.0, 1e6), st.floats(0.0, 0.3), st.floats(1e-6, 1e-2))
def test_no_server_is_told_to_be_slower_than_it_is(
    tokens: int, blocks: int, block_tokens_per_s: float, round_trip_s: float, line_s: float
) -> None:
    """Over any way and line that carries what this client has seen it carry."""
    seconds = tokens * blocks / block_tokens_per_s + round_trip_s + tokens * line_s
    rate = rate_of_pass(Pass(tokens, blocks, blocks, seconds, round_trip_s), line_s)
    assert rate is None or rate >= 2 * block_tokens_per_s / (blocks + 1) * (1 - 1e-6)


def test_of_more_servers_than_fit_those_used_most_are_told() -> None:
    notes = Notes()
    for number in range(MOST_SERVERS + 6):
        for _ in range(1 + number):
            notes.worked(peer_id(f"s{number}"))
    reports = notes.take()
    assert len(reports) == MOST_SERVERS and min(server.requests for server in reports) == 7
