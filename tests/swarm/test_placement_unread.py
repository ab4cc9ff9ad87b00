"""A block that could not be read is not a block without a server: no reason says so, and nobody is drawn there by it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.placement import Circumstances, Pace, Promise, advise, choose_span, plan, still_useful
from swarm.snapshot import Model
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span
from tests.strategies import models
from tests.swarms import model, peer_id, server

SIX_ON_EIGHT = [server(f"{start}-{copy}", start, start + 4) for start in (0, 4) for copy in range(6)]
DARK = frozenset(range(8, 12))
_NO_SERVER = re.compile(r"blocks? ([0-9–, ]+) ha(?:s|ve) no server")


def bare_in(reason: str) -> set[int]:
    """The blocks of which a sentence says that they have no server."""
    found: set[int] = set()
    for listed in _NO_SERVER.findall(reason):
        for part in listed.split(", "):
            first, _, last = part.partition("–")
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_a_newcomer_is_not_sent_to_blocks_that_could_not_be_read() -> None:
    placement = choose_span(model(12, *SIX_ON_EIGHT, unread=DARK), 4)
    assert placement.span.end <= 8 and placement.reason_code is ReasonCode.WEAKEST
    assert "no server" not in placement.reason


def test_blocks_without_a_server_still_come_first_beside_unread_ones() -> None:
    swarm = model(12, *SIX_ON_EIGHT, unread=frozenset({10, 11}))
    placement = choose_span(swarm, 4)
    assert placement.span.covers(Span(8, 10)) and placement.reason_code is ReasonCode.HOLE
    assert placement.reason == "blocks 8–9 have no server"
    assert choose_span(swarm, 12).reason == "blocks 8–9 have no server; blocks 10–11 could not be read"


def test_where_nothing_could_be_read_an_arrival_is_told_so_and_the_next_one_goes_elsewhere() -> None:
    dark = model(8, unread=frozenset(range(8)))
    first = choose_span(dark, 4)
    assert (first.span, first.reason_code) == (Span(0, 4), ReasonCode.BLIND)
    assert first.reason == "blocks 0–3 could not be read"
    assert choose_span(dark, 4, [Promise(peer_id("a"), first.span)]).span == Span(4, 8)


def test_an_unread_block_that_somebody_is_known_to_hold_counts_as_held() -> None:
    placement = choose_span(model(4, server("a", 0, 4), unread=frozenset(range(4))), 4)
    assert (placement.reason_code, placement.reason) == (ReasonCode.THINNEST, "blocks 0–3 have only one server")


def test_in_a_rich_swarm_unread_blocks_are_not_taken_for_the_weakest() -> None:
    crowd = [server(f"s{n}", 0, 8) for n in range(400)]
    rich = model(10, *crowd, unread=frozenset({8, 9}))
    assert choose_span(rich, 2).span == Span(0, 2)


@pytest.mark.parametrize("known", [None, Circumstances(ages_s={s.peer_id: 90_000.0 for s in SIX_ON_EIGHT})])
def test_a_server_that_stays_is_told_what_is_not_known(known: Circumstances | None) -> None:
    me = SIX_ON_EIGHT[0]
    told = advise(model(12, *SIX_ON_EIGHT, unread=DARK), me.peer_id, 4, serving=me.span, known=known)
    assert told.reason.startswith("blocks 8–11 could not be read; every other block has a server")
    unsized = replace(model(8, *SIX_ON_EIGHT), at_least=True)
    told = advise(unsized, me.peer_id, 4, serving=me.span, known=known)
    assert told.reason.startswith("every block that was seen has a server")


@given(models(), st.integers(1, 6), st.booleans(), st.booleans(), st.data())
def test_no_reason_says_of_an_unread_block_that_it_has_no_server(
    swarm: Model, size: int, rich: bool, paced: bool, data: st.DataObject
) -> None:
    known = Circumstances(ages_s={s.peer_id: 90_000.0 for s in swarm.servers}) if rich else None
    pace = Pace(data.draw(st.floats(1.0, 500.0))) if paced else None
    reasons = [choose_span(swarm, size, known=known, pace=pace).reason]
    reasons += [move.reason for move in plan(swarm, known=known)]
    reasons.append(advise(swarm, peer_id("new"), size, serving=None, known=known, pace=pace).reason)
    reasons += [advise(swarm, s.peer_id, size, serving=s.span, known=known).reason for s in swarm.servers[:3]]
    for reason in reasons:
        assert not bare_in(reason) & swarm.unread_blocks, reason


def test_who_may_be_the_last_on_blocks_that_could_not_be_read_stays_and_nobody_says_that_they_have_none() -> None:
    swarm = model(8, server("a", 0, 4), server("b", 0, 4), server("me", 4, 8), unread=frozenset(range(4, 8)))
    words = still_useful(swarm, peer_id("me"), Span(0, 4), Span(4, 8))
    assert words == "blocks 4–7 could not be read; this server may be their last"
    known = replace(swarm, unread_blocks=frozenset({4, 5}))
    assert still_useful(known, peer_id("me"), Span(0, 4), Span(4, 8)) == "without this server blocks 6–7 have no server"
