"""What is done to the swarm, and when. Pure: the same seed gives the same plan.

A plan knows who should be up, and asks nothing that cannot be: whoever is away can only come back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

BLOCKS = 6
SERVERS = ("a", "b", "c", "d", "e", "f", "g", "h")
FREE = ("g", "h")
"""Choose their blocks themselves, and move where they find a hole; all others stand where the plan puts them."""
BOOTSTRAPS = ("boot-1", "boot-2")
CRAWLER = "crawler"
SPANS = ((0, 2), (2, 4), (4, 6), (0, 3), (3, 6), (1, 4), (2, 5))
FIRST_SPANS = dict(zip(SERVERS, ((0, 3), (3, 6), (0, 2), (2, 4), (4, 6), (1, 4)), strict=False))

MOST_AWAY = 4
"""Beyond that nothing would be left to see but holes."""
BEGIN_S = 30.0
"""Until then the swarm is left alone, so that there is something to lose."""
PAUSES_S = (3.0, 14.0)
AWAY_S = (4.0, 110.0)
"""From less than a crawl's time to more than a record's life (60 s)."""
FROZEN_S = (4.0, 45.0)
STORM_AT = 0.45
"""At this share of the whole, four servers are killed at once: a loss that the gate holds back first."""
DARK_AT, DARK_S = 0.7, 35.0
"""All bootstrap peers away, and the crawler's own peer killed: nobody is there through whom it could come back."""
FAULTY_EVERY_S = 40.0
"""Of the crawler's own faults."""


class Act(StrEnum):
    START = "start"
    KILL = "kill"
    STOP = "stop"
    FREEZE = "freeze"
    THAW = "thaw"
    BLIND = "blind"
    """The crawler's p2pd is killed in the middle of a crawl."""
    DIM = "dim"
    """The crawler's p2pd is frozen before it reads, for longer than any question waits."""
    GAP = "gap"
    """The next crawls cannot read the keys of some blocks."""


@dataclass(frozen=True, order=True, slots=True)
class Step:
    """At so many seconds, to whom; a server that starts stands at `span`, or where it likes."""

    at: float
    act: Act
    who: str
    span: tuple[int, int] | None = None


@dataclass
class _Swarm:
    """When each server that is away comes back; spans as they were last."""

    dice: random.Random
    spans: dict[str, tuple[int, int] | None] = field(default_factory=lambda: {n: FIRST_SPANS.get(n) for n in SERVERS})
    back_at: dict[str, float] = field(default_factory=dict)

    def lose(self, at: float, who: str, act: Act) -> Iterator[Step]:
        if act is Act.FREEZE:
            self.back_at[who] = at + self.dice.uniform(*FROZEN_S)
            yield from (Step(at, act, who), Step(self.back_at[who], Act.THAW, who))
            return
        self.back_at[who] = at + self.dice.uniform(*AWAY_S)
        if who not in FREE and self.dice.random() < 0.4:
            self.spans[who] = self.dice.choice(SPANS)
        yield from (Step(at, act, who), Step(self.back_at[who], Act.START, who, self.spans[who]))

    def present(self, at: float) -> list[str]:
        """Those who have had half a minute to come back."""
        return [name for name in SERVERS if at >= self.back_at.get(name, 0.0) + 30.0]


def plan(seed: int, length_s: float) -> list[Step]:
    """Everything after the start of the bootstrap peers and the first servers, in the order of time."""
    dice = random.Random(seed)
    swarm = _Swarm(dice)
    steps = [*_bootstraps(length_s), *_crawler(dice, length_s)]
    at, stormed = BEGIN_S, False
    while at < length_s - 20.0:
        here = swarm.present(at)
        if not stormed and at >= STORM_AT * length_s and len(here) >= MOST_AWAY:
            stormed = True
            for who in dice.sample(here, MOST_AWAY):
                steps += swarm.lose(at, who, Act.KILL)
        elif len(SERVERS) - len(here) < MOST_AWAY:
            act = dice.choice((Act.KILL, Act.KILL, Act.STOP, Act.FREEZE))
            steps += swarm.lose(at, dice.choice(here), act)
        at += dice.uniform(*PAUSES_S)
    return sorted(step for step in steps if step.at < length_s)


def _bootstraps(length_s: float) -> Iterator[Step]:
    first, second = BOOTSTRAPS
    yield from (Step(0.25 * length_s, Act.KILL, first), Step(0.25 * length_s + 60.0, Act.START, first))
    dark = DARK_AT * length_s
    for name in (first, second):
        yield from (Step(dark, Act.KILL, name), Step(dark + DARK_S, Act.START, name))
    yield Step(dark + 1.0, Act.BLIND, CRAWLER)


def _crawler(dice: random.Random, length_s: float) -> Iterator[Step]:
    for number in range(int(length_s / FAULTY_EVERY_S)):
        at = (number + dice.random()) * FAULTY_EVERY_S
        act = (Act.GAP, Act.DIM, Act.GAP, Act.BLIND, Act.GAP)[number % 5]
        start = dice.randrange(BLOCKS)
        yield Step(at, act, CRAWLER, (start, min(BLOCKS, start + dice.randint(1, 3))) if act is Act.GAP else None)
