"""A server that nobody has led for an hour improves the swarm by moving itself: seldom, safely, and not in a herd."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from blockserver.serving.advice import BY_ITSELF
from blockserver.serving.hint_client import HintClient
from blockserver.serving.own_balance import BALANCE_ALONE_AFTER_S, LOOK_EVERY_S, OwnBalance, own_move
from swarm.placement import COOL_DOWN_S, find_holes
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span
from tests.blockserver.coordinators import STAY, coordinator
from tests.blockserver.serving.test_advice import Situation
from tests.blockserver.serving.test_own_view import Lonely
from tests.swarms import model, ours, peer_id, server

HINT = "/api/v1/hint"
HERE = Span(0, 12)
UNEVEN = ours(model(24, *(server(f"a{n}", 0, 12) for n in range(6)), *(server(f"b{n}", 12, 24) for n in range(2))))
"""Six servers of one half and two of the other; `a0` may leave."""
ME = peer_id("a0")


def bottleneck(seen: Model) -> float:
    online = [one for one in seen.servers if one.state is PeerState.ONLINE]
    rates = [sum(one.record.throughput or 0.0 for one in online if block in one.span) for block in range(seen.num_blocks)]
    return min(rates)


# ------------------------------------------------------------------------------------------------------- one look, any swarm


def any_swarm(draw: random.Random) -> Model:
    states = [PeerState.ONLINE] * 30 + [PeerState.JOINING]
    servers = []
    for number in range(draw.randint(6, 20)):
        start = draw.choice((0, 0, 0, 2, 4, 6, 8))
        servers.append(server(f"s{number}", start, start + 4, draw.choice(states), draw.uniform(5, 20)))
    return model(12, *servers)


def moves_in_any_swarm() -> list[tuple[Model, str, Span, Span]]:
    draw, found = random.Random(7), []
    for _ in range(150):
        seen = any_swarm(draw)
        for one in seen.servers:
            move = own_move(seen, one.peer_id, one.span)
            if move is not None:
                found.append((seen, one.peer_id, one.span, move.target))
    return found


def test_whatever_the_swarm_no_move_opens_a_hole_or_leaves_a_block_with_less_than_one_other_server_online() -> None:
    found = moves_in_any_swarm()
    assert len(found) > 100
    for seen, me, origin, target in found:
        others = [one for one in seen.servers if one.peer_id != me and one.state is PeerState.ONLINE]
        assert all(any(block in other.span for other in others) for block in origin)
        assert not find_holes(seen), "holes come first"
        assert len(target) == len(origin)
        assert sum(one.state is PeerState.JOINING for one in seen.servers) == 0, "of so few, one loads at a time"


def test_it_moves_where_that_is_worth_it_and_says_why() -> None:
    move = own_move(UNEVEN, ME, HERE)
    assert move is not None and move.target == Span(12, 24)
    assert move.reason_code in (ReasonCode.BALANCE, ReasonCode.REDUNDANCY) and move.reason and (move.gain or 0.0) > 0.01


@pytest.mark.parametrize(
    "changed",
    [
        replace(UNEVEN, unread_blocks=frozenset({3})),
        replace(UNEVEN, servers=(*UNEVEN.servers[1:], server("a0", 2, 14))),
        replace(UNEVEN, servers=(*UNEVEN.servers, server("c", 0, 12, PeerState.JOINING))),
        replace(UNEVEN, num_blocks=26),
        replace(UNEVEN, servers=tuple(one for one in UNEVEN.servers if one.span.start == 12 or one.peer_id == ME)),
    ],
    ids=["not read whole", "seen elsewhere", "one loads", "a hole", "the last one here"],
)
def test_it_stays(changed: Model) -> None:
    assert own_move(changed, ME, HERE) is None


def test_a_boast_of_ten_times_the_speed_keeps_nobody_where_it_is() -> None:
    """Were it believed, its half would seem to be the stronger one."""
    boasting = tuple(
        replace(one, record=replace(one.record, throughput=400.0)) if one.peer_id == peer_id("b0") else one
        for one in UNEVEN.servers
    )
    move = own_move(replace(UNEVEN, servers=boasting), ME, HERE)
    assert move is not None and move.target == Span(12, 24)


@pytest.mark.parametrize("after_s", [0.0, COOL_DOWN_S - 1])
def test_not_within_the_cool_down_after_a_move(after_s: float) -> None:
    assert own_move(UNEVEN, ME, HERE, after_s) is None
    assert own_move(UNEVEN, ME, HERE, COOL_DOWN_S) is not None


# ------------------------------------------------------------------------------------------------------- looks of one server


def balance(draw: Callable[[float, float], float] = lambda low, high: low) -> OwnBalance:
    made = OwnBalance(ME, 60.0, draw)
    made.note("tiny-hf", HERE, 0.0)
    return made


def test_only_what_is_found_twice_is_done() -> None:
    mine = balance()
    assert mine.is_due(0.0) and mine.look(UNEVEN, HERE, 0.0) is None
    assert not mine.is_due(59.0) and mine.is_due(60.0)
    other = replace(UNEVEN, servers=tuple(one for one in UNEVEN.servers if one.peer_id != peer_id("a1")))
    even = replace(other, servers=(*other.servers, *(server(f"c{n}", 12, 24) for n in range(4))))
    assert mine.look(even, HERE, 60.0) is None and mine.intended is None
    assert not mine.is_due(60.0 + LOOK_EVERY_S / 2 - 1) and mine.is_due(60.0 + LOOK_EVERY_S / 2)
    assert [mine.look(UNEVEN, HERE, at) is not None for at in (2_000.0, 2_060.0)] == [False, True]


def test_after_a_move_by_whose_word_ever_it_rests() -> None:
    """Also where the move came to nothing, and where it is not its own."""
    mine = balance()
    assert [mine.look(UNEVEN, HERE, at) is not None for at in (0.0, 60.0)] == [False, True]
    assert [mine.look(UNEVEN, HERE, at) for at in (100.0, 160.0, 60.0 + COOL_DOWN_S - 1)] == [None] * 3
    assert mine.intended is None
    led = balance()
    led.note("tiny-hf", Span(12, 24), 500.0)
    led.note("tiny-hf", HERE, 1_000.0)
    assert led.look(UNEVEN, HERE, 1_000.0 + COOL_DOWN_S - 1) is None and led.intended is None
    assert led.look(UNEVEN, HERE, 1_000.0 + COOL_DOWN_S) is None and led.intended is not None


# -------------------------------------------------------------------------------------- an adviser, and its silent coordinator


async def decides(me: Situation, after_s: float, sessions: int = 0) -> str | None:
    me.seconds += after_s
    decision = await me.adviser.reconsider("tiny-hf", HERE, sessions)
    return str(decision) if decision is not None else None


def situation(hints: HintClient | None, seen: Model = UNEVEN) -> Situation:
    me = Situation(hints, seen, me="a0")
    me.adviser._balance.draw = lambda low, high: low
    return me


async def test_an_hour_after_the_last_advice_it_moves_by_itself_and_says_so_and_not_any_more_once_there_is_advice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with coordinator() as told:
        async with HintClient(told.url) as hints:
            me = situation(hints)
            for _ in range(2):
                told.answers[HINT] = 503
                assert [await decides(me, after) for after in (0, 100, 100, BALANCE_ALONE_AFTER_S - 201)] == [None] * 4
                assert "before moving to" not in caplog.text
                assert await decides(me, 1) is None
                assert "looking again in 60 s before moving to blocks 12–23" in caplog.text
                caplog.clear()
                told.answers[HINT] = STAY
                assert [await decides(me, after) for after in (60, 600)] == [None] * 2
            told.answers[HINT] = 503
            assert [await decides(me, after) for after in (0, 100, 100, BALANCE_ALONE_AFTER_S)] == [None] * 4
            moved = await decides(me, 60)
    assert moved is not None and moved.startswith(f"blocks 12–23, decided by {BY_ITSELF}: ")


async def test_without_a_coordinator_it_is_an_hour_from_its_start() -> None:
    me = situation(None)
    assert [await decides(me, after) for after in (0, BALANCE_ALONE_AFTER_S - 1, 1)] == [None] * 3
    assert await decides(me, 60) is not None


async def test_open_sessions_keep_it_where_it_is() -> None:
    me = situation(None)
    assert [await decides(me, after, sessions=1) for after in (0, BALANCE_ALONE_AFTER_S, 60, 60, 600)] == [None] * 5
    assert [await decides(me, 0, sessions) for sessions in (0, 1, 0)] == [None] * 3, "nor between two looks"
    assert await decides(me, 60) is not None


async def test_a_hole_goes_first() -> None:
    me = situation(None, replace(UNEVEN, num_blocks=26))
    await decides(me, 0)
    me.seconds += BALANCE_ALONE_AFTER_S
    holed = [await me.adviser.reconsider("tiny-hf", HERE) for me.seconds in (me.seconds, me.seconds + 61)]
    assert all(one is None or one.placement.reason_code is ReasonCode.HOLE for one in holed)
    assert me.adviser._balance.intended is None


# --------------------------------------------------------------------------------------------------------------- no herd


def crooked() -> Model:
    """Twenty servers of the first blocks, ten of the rest: what one of them would improve, all would."""
    places = [(0, 4)] * 12 + [(2, 6)] * 8 + [(6, 10)] * 4 + [(10, 14)] * 3 + [(12, 16)] * 3
    return ours(model(16, *(server(f"s{n:02}", *place, throughput=8.0 + n % 5) for n, place in enumerate(places))))


SEEN_WITHIN_S = 7.0
"""What a server says reaches the others in `Lonely` by then."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_of_thirty_that_lost_their_coordinator_one_loads_at_a_time_or_two_that_could_not_know_and_then_they_settle(
    seed: int,
) -> None:
    swarm = crooked()
    lonely = Lonely(swarm, {one.peer_id for one in swarm.servers}, seed)
    await lonely.run(12 * 3600, every_s=60)
    assert len(lonely.moves) >= 3 and lonely.moves[0] >= BALANCE_ALONE_AFTER_S
    together = [(sooner, later) for sooner, later in pairwise(sorted(lonely.loads)) if later[0] < sooner[1]]
    assert all(later[0] - sooner[0] < SEEN_WITHIN_S for sooner, later in together), "two decided before either was seen to load"
    assert all(sum(begin <= at < until for begin, until in lonely.loads) <= 2 for at, _ in lonely.loads)
    assert not find_holes(lonely.seen()) and bottleneck(lonely.seen()) > 1.5 * bottleneck(swarm)
    assert lonely.moves[-1] < 8 * 3600, "for four hours nobody has moved"
