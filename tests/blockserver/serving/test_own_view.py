"""Who moves for a hole where nobody is told: one server of those that follow the rule, soon, also where many do not."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from blockserver.serving.advice import Adviser, Candidate
from blockserver.serving.own_view import Finding
from swarm.placement import find_holes
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.spans import Span
from tests.swarms import model, ours, peer_id, server

CONFIRM_S = 60.0
HOLE = Span(8, 12)


def crowd(of_each: int) -> Model:
    """So many servers of each block but those of HOLE, the slower the earlier in the alphabet: in that order they are asked."""
    names = [f"{letter}{n:02}" for letter in "ab" for n in range(of_each)]
    return model(12, *(server(name, *_place(name), throughput=5.0 + at) for at, name in enumerate(names)))


def _place(name: str) -> tuple[int, int]:
    return (0, 4) if name[0] == "a" else (4, 8)


def first_turns(swarm: Model) -> list[float]:
    """When the turns of the first servers begin, in seconds after the hole was found."""
    found = Finding(frozenset(HOLE), 0.0)
    starts: list[float] = []
    left: frozenset[str] | None = None
    for second in range(3_600):
        movable = found.movable(swarm, float(second), CONFIRM_S)
        if movable != left:
            starts.append(second)
        left = movable
    return starts


def test_the_first_two_have_time_to_move_and_a_crowd_that_does_not_keeps_no_hole_open_for_long() -> None:
    starts = first_turns(ours(crowd(20)))
    assert starts[:4] == [0, 120, 240, 300], "who follows the rule has moved, and is seen to load, before the next one's turn"
    gaps = [later - sooner for sooner, later in pairwise(starts)]
    assert all(later <= sooner + 1 for sooner, later in pairwise(gaps)), "to the second"
    assert starts[9] < 480 and starts[30] < 660, "nine that do not follow cost less than eight minutes, thirty eleven"


def test_servers_that_do_not_say_that_they_are_ours_are_not_waited_for() -> None:
    mixed = crowd(4)
    last = max(mixed.servers, key=lambda one: one.peer_id).peer_id
    said = tuple(one if one.peer_id != last else ours(replace(mixed, servers=(one,))).servers[0] for one in mixed.servers)
    assert Finding(frozenset(HOLE), 0.0).movable(replace(mixed, servers=said), 0.0, CONFIRM_S) == {last}


# ----------------------------------------------------------------------------------------------- real advisers, made-up DHT


@dataclass
class Step:
    """From `at` on others see the server there."""

    at: float
    span: Span
    state: PeerState


class Lonely:
    """A swarm without a coordinator: who follows the rule looks every 30 s or so, and what it says is seen seconds later."""

    def __init__(self, swarm: Model, follows: set[str], seed: int) -> None:
        self.draw = random.Random(seed)
        self.swarm, self.follows, self.now = swarm, follows, 0.0
        self.steps = {one.peer_id: [Step(0.0, one.span, PeerState.ONLINE)] for one in swarm.servers}
        self.moves: list[float] = []
        self.loads: list[tuple[float, float]] = []
        """From when to when somebody loaded."""

    def seen(self) -> Model:
        return replace(self.swarm, servers=tuple(map(self._shown, self.swarm.servers)))

    def _shown(self, one: Server) -> Server:
        step = [step for step in self.steps[one.peer_id] if step.at <= self.now][-1]
        return replace(one, span=step.span, state=step.state)

    async def _view(self) -> Model:
        return self.seen()

    async def run(self, until_s: float, every_s: float = 30.0) -> None:
        advisers = {one: self._adviser(one) for one in sorted(self.follows)}
        # A coordinator is missed by all of them within two minutes, and not by all at once.
        due = [(self.draw.uniform(0, 120), one) for one in advisers]
        heapq.heapify(due)
        while due and due[0][0] < until_s:
            self.now, one = heapq.heappop(due)
            here = self.steps[one][-1].span
            decision = await advisers[one].reconsider(self.swarm.prefix, here)
            wait = every_s * self.draw.uniform(0.8, 1.2)
            if decision is not None:
                self.moves.append(self.now)
                there, load_s = decision.placement.span, self.draw.uniform(120, 300)
                self.steps[one].append(Step(self.now + self.draw.uniform(1, 7), there, PeerState.JOINING))
                self.steps[one].append(Step(self.now + load_s, there, PeerState.ONLINE))
                self.loads.append((self.now, self.now + load_s))
                wait += load_s
            heapq.heappush(due, (self.now + wait, one))
        self.now = until_s

    def _adviser(self, one: str) -> Adviser:
        candidate = Candidate(self.swarm.prefix, 4, self.swarm.num_blocks, self._view)
        return Adviser(one, (candidate,), None, 180.0, CONFIRM_S, clock=lambda: self.now, draw=self.draw.uniform)


@pytest.mark.parametrize("seed", range(3))
async def test_where_all_follow_the_rule_one_moves_or_two_that_began_to_count_far_apart(seed: int) -> None:
    swarm = ours(crowd(4))
    lonely = Lonely(swarm, {one.peer_id for one in swarm.servers}, seed)
    await lonely.run(900)
    assert 1 <= len(lonely.moves) <= 2 and not find_holes(lonely.seen())


def test_a_hole_that_stays_for_weeks_is_no_endless_sum() -> None:
    assert Finding(frozenset(HOLE), 0.0).movable(ours(crowd(4)), 1e7, CONFIRM_S) == frozenset()


@pytest.mark.parametrize("seed", range(3))
async def test_where_nine_of_ten_do_not_though_they_say_that_they_are_ours_the_hole_is_filled_and_draws_no_herd(
    seed: int,
) -> None:
    swarm = ours(crowd(10))
    lonely = Lonely(swarm, {peer_id("b08"), peer_id("b09")}, seed)
    await lonely.run(1_500)
    assert 1 <= len(lonely.moves) <= 2 and not find_holes(lonely.seen())
    assert lonely.moves[0] < 900


async def test_where_nine_of_ten_are_petals_servers_it_takes_no_longer_than_without_them() -> None:
    swarm = crowd(10)
    follower = peer_id("b09")
    said = {one.peer_id: one for one in ours(swarm).servers}
    mixed = replace(swarm, servers=tuple(said[one.peer_id] if one.peer_id == follower else one for one in swarm.servers))
    lonely = Lonely(mixed, {follower}, seed=1)
    await lonely.run(600)
    assert len(lonely.moves) == 1 and lonely.moves[0] < 300 and not find_holes(lonely.seen())
