"""When an incident begins and ends: by what was seen, and never by what was not."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from monitor.history.rules import (
    THIN_FOR_S,
    Arrival,
    Bounds,
    Changes,
    Departure,
    How,
    Kind,
    Look,
    Ongoing,
    Seen,
    advance,
    advance_blindness,
)
from swarm.coverage import coverage
from swarm.snapshot import Model, PeerState, Server
from tests.strategies import models
from tests.swarms import model, peer_id, server

WHOLE = model(4, server("a", 0, 4), server("b", 0, 4), server("c", 0, 4))
HOLE = model(4, server("a", 0, 3), server("b", 0, 3), server("c", 0, 3, PeerState.JOINING))
EVERY = 30.0


def follow(*looks: Model, every: float = EVERY, start: float = 0.0) -> list[Changes]:
    """One crawl after another."""
    told: list[Changes] = []
    still: Iterable[Ongoing] = ()
    earlier: tuple[Server, ...] = ()
    for number, look in enumerate(looks):
        at = start + number * every
        seen = Seen(look, at, earlier, at - every if number else None, blind_after_s=3 * EVERY)
        told.append(advance(still, seen))
        still, earlier = told[-1].open, look.servers
    return told


def confirmed(changes: Changes) -> list[Kind]:
    return [incident.kind for incident in changes.open if incident.confirmed_at is not None]


def test_a_hole_in_one_crawl_is_only_a_suspicion() -> None:
    told = follow(WHOLE, HOLE, WHOLE)
    assert [confirmed(changes) for changes in told] == [[], [], []]
    assert told[1].open and not told[2].open and not told[2].ended


def test_a_hole_in_two_crawls_is_an_incident_with_bounds_that_name_who_left_and_who_came() -> None:
    opened, ended = follow(WHOLE, HOLE, HOLE, WHOLE)[2:]
    (incident,) = opened.open
    assert incident.start == Bounds(0.0, 30.0) and incident.confirmed_at == 60.0 and incident.blocks == {3}
    assert {(left.peer_id, left.how) for left in incident.left} == {
        (peer_id("a"), How.MOVED),
        (peer_id("b"), How.MOVED),
        (peer_id("c"), How.JOINING if HOLE.servers[2].span == WHOLE.servers[2].span else How.MOVED),
    }
    (over,) = ended.ended
    assert (over.incident.bad_at, over.at) == (60.0, 90.0)
    assert {arrival.peer_id for arrival in over.restored} == {peer_id("a"), peer_id("b"), peer_id("c")}


def test_how_a_server_left_is_what_was_seen_of_it() -> None:
    whole = model(5, *(server(name, n, n + 1) for n, name in enumerate("abcde")))
    left, silent = server("a", 0, 1, PeerState.LEAVING), server("b", 1, 2, PeerState.UNREACHABLE)
    after = model(5, left, silent, server("d", 4, 5), server("e", 4, 5))
    (hole,) = (i for i in follow(whole, after, after)[2].open if i.kind is Kind.HOLE)
    assert hole.left == (
        Departure(peer_id("a"), How.NORMALLY, 30.0, "block 0"),
        Departure(peer_id("b"), How.SILENT, 30.0, "block 1"),
        Departure(peer_id("c"), How.VANISHED, 30.0, "block 2"),
        Departure(peer_id("d"), How.MOVED, 30.0, "block 3"),
    )


def test_one_server_is_a_warning_after_half_an_hour_and_not_before() -> None:
    thin = model(2, server("a", 0, 2), server("b", 0, 1))
    told = follow(*[thin] * 62)
    first = next(number for number, changes in enumerate(told) if confirmed(changes))
    assert first * EVERY == THIN_FOR_S
    assert told[first].open[0].blocks == {1} and told[first].open[0].start == Bounds(None, 0.0)
    assert confirmed(told[-1]) == [Kind.THIN]


def test_two_blocks_that_are_thin_in_turn_are_no_warning() -> None:
    first, then = model(2, server("a", 0, 2), server("b", 0, 1)), model(2, server("a", 0, 2), server("b", 1, 2))
    assert not any(confirmed(changes) for changes in follow(*[first] * 40, *[then] * 40))


def test_a_thin_block_that_loses_its_server_is_not_restored() -> None:
    thin, hole = model(1, server("a", 0, 1)), model(1)
    told = follow(*[thin] * 61, hole, hole)
    assert confirmed(told[-1]) == [Kind.HOLE, Kind.THIN]
    assert not told[-2].ended and not told[-1].ended


def test_what_could_not_be_read_neither_begins_nor_ends_anything() -> None:
    unread = model(4, server("a", 0, 3), server("b", 0, 3), unread=frozenset({3}))
    assert not any(changes.open for changes in follow(WHOLE, unread, unread))
    told = follow(WHOLE, HOLE, HOLE, unread, unread, WHOLE)
    assert confirmed(told[4]) == [Kind.HOLE] and told[4].open[0].bad_at == 60.0
    assert told[5].ended[0].incident.bad_at == 60.0 and told[5].ended[0].at == 150.0
    assert not confirmed(follow(WHOLE, HOLE, unread, unread)[-1]), "a hole seen once is not confirmed by not looking"


def test_a_suspicion_does_not_outlive_a_time_without_sight() -> None:
    told = follow(WHOLE, HOLE, HOLE, every=600.0)
    assert [confirmed(changes) for changes in told] == [[], [], []]


@given(st.lists(models(max_blocks=5, max_servers=4), min_size=1, max_size=12))
def test_an_incident_is_open_only_while_its_blocks_lack_servers_and_each_ends_once(looks: list[Model]) -> None:
    for changes, look in zip(follow(*looks), looks, strict=True):
        lacking = {block.index for block in coverage(look).blocks if block.redundancy in (None, 0, 1)}
        for incident in changes.open:
            assert incident.current and set(incident.current) - set(range(look.num_blocks, 5)) <= lacking
            assert incident.start.after is None or incident.start.after < incident.start.before <= incident.bad_at
            assert incident.confirmed_at is None or incident.blocks
        for ended in changes.ended:
            assert ended.incident.bad_at < ended.at and ended.incident.confirmed_at is not None
        assert len({incident.kind for incident in changes.open}) == len(changes.open)


def test_an_arrival_is_named_only_where_it_brought_a_block_back() -> None:
    after = model(4, *HOLE.servers[:2], server("d", 3, 4), server("e", 0, 2))
    assert follow(WHOLE, HOLE, HOLE, after)[3].ended[0].restored == (Arrival(peer_id("d"), "block 3"),)


def look(at: float, *, saw: bool, last: float | None) -> Look:
    return Look(at, saw, last, interval_s=EVERY, blind_after_s=3 * EVERY)


def test_blindness_begins_when_pages_say_unknown_and_ends_with_the_next_sight() -> None:
    assert not advance_blindness(None, look(90, saw=False, last=0.0)).open
    (blind,) = advance_blindness(None, look(91, saw=False, last=0.0)).open
    assert blind.kind is Kind.BLIND and blind.start == Bounds(0.0, 30.0) and blind.confirmed_at == 91
    (still,) = advance_blindness(blind, look(150, saw=False, last=0.0)).open
    (over,) = advance_blindness(still, look(180, saw=True, last=0.0)).ended
    assert (over.incident.bad_at, over.at) == (150, 180)


def test_a_gap_that_nobody_noticed_while_it_lasted_is_told_afterwards() -> None:
    changes = advance_blindness(None, look(1_000, saw=True, last=0.0))
    assert not changes.open and changes.ended[0].at == 1_000


def test_a_monitor_that_never_saw_the_swarm_has_not_lost_sight_of_it() -> None:
    assert advance_blindness(None, look(1_000, saw=False, last=None)) == Changes()


def test_a_slow_crawl_was_no_blindness() -> None:
    (blind,) = advance_blindness(None, look(91, saw=False, last=0.0)).open
    assert advance_blindness(blind, look(20, saw=True, last=0.0)) == Changes()
