"""Whose answer differs from that of the others, as far as that can be told. Pure: answers to the same questions go in,
findings come out.

Nobody here knows the right answer. Where two servers of different operators agree with each other and not with a third, at two
different rounds, the third answers differently; where no side is larger, it is only said that they disagree. A crowd that
lies alike can frame an honest server, so what follows from a finding is little (`docs/threat-model.md`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from swarm.answers.prints import NUMBERS, Print
from swarm.wire.spans import Span

APART = 0.65
"""Answers farther apart than this share of the longer one are not the same. Honest servers in float32, bfloat16, int8 and nf4
differ by up to 0.52 on one block, nonsense from any of them by 0.98 and more (docs/planner.md)."""
OTHERS_NEEDED = 2
"""Operators who must agree against one: of two that disagree, either may be wrong."""
ROUNDS_NEEDED = 2
ROUNDS_REMEMBERED = 4
"""Of those in which it was compared with others. Who answers rightly again is cleared by three good rounds."""
WRONG_NEEDED = 2
"""Answers in a row that are wrong by themselves, until a server counts as not serving: one may have been a moment's fault."""


class Standing(StrEnum):
    """What the answers of a server come to."""

    ALONE = "alone"
    AGREES = "agrees"
    DISPUTED = "disputed"
    DIFFERS = "differs"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked of whom alike. `whole`: the span at once, which is compared only among servers of exactly this span and
    in one precision: over many blocks what is lost in four bits grows beyond what tells nonsense apart."""

    prefix: str
    round: int
    span: Span
    whole: bool = False
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """`operator` is what goes under one roof, as far as that is known; all who hide it are taken for one."""

    peer_id: str
    operator: str
    question: Question
    print: Print


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one server of one model. `wrong` says what is wrong with its answers by themselves, `times` how often in a row;
    `against` counts the operators who agreed with each other and not with it, at their most; `blocks` is where."""

    standing: Standing
    round: int
    blocks: Span
    whole: bool = False
    against: int = 0
    wrong: str = ""
    times: int = 0

    @property
    def doubted(self) -> bool:
        """Whether its speed says nothing, because its answers may be worth nothing."""
        return self.standing in (Standing.DIFFERS, Standing.WRONG)

    @property
    def serves_nothing(self) -> bool:
        return self.standing is Standing.WRONG and self.times >= WRONG_NEEDED


Key = tuple[str, str]
"""Prefix and peer id."""


def distance(one: Print, other: Print) -> float:
    """Of what was added, as a share of the longer one: 0 for the same, about 1.4 for two that have nothing in common. Of
    several turns the worst counts: who answers one rightly and the others quickly has not answered."""
    if len(one.numbers) != len(other.numbers):
        return math.inf
    return max((_apart(mine, others) for mine, others in zip(one.turns, other.turns, strict=True)), default=math.inf)


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    longest = max(math.hypot(*one), math.hypot(*other))
    return math.dist(one, other) / longest if longest else 0.0


def judge(answers: Iterable[Answer]) -> dict[Key, Finding]:
    """For everyone who answered; later answers to the same question take the place of earlier ones."""
    asked: dict[Question, dict[str, Answer]] = defaultdict(dict)
    for answer in answers:
        asked[answer.question][answer.peer_id] = answer
    rounds: dict[Key, dict[int, Finding]] = defaultdict(dict)
    for question, given in sorted(asked.items(), key=lambda item: (item[0].round, item[0].whole, item[0].span)):
        for peer_id, found in _compared(question, given).items():
            mine = rounds[question.prefix, peer_id]
            mine[question.round] = max(mine.get(question.round, found), found, key=_gravity)
    return {key: _over(list(found.values())) for key, found in rounds.items()}


def _compared(question: Question, given: Mapping[str, Answer]) -> dict[str, Finding]:
    """One question: for each server how its answer stands to those of others."""
    answers = list(given.values())
    near = _near([answer.print for answer in answers])
    operators = sorted({answer.operator for answer in answers})
    numbers = np.array([operators.index(answer.operator) for answer in answers])
    found = {}
    for row, answer in enumerate(answers):
        others = numbers != numbers[row]
        friends = len(np.unique(numbers[others & near[row]]))
        against = _largest_side(np.flatnonzero(others & ~near[row]), near, numbers)
        standing = _standing(bool(others.any()), friends, against)
        found[answer.peer_id] = Finding(standing, question.round, question.span, question.whole, against)
    return found


def _standing(has_others: bool, friends: int, against: int) -> Standing:
    """`friends`: operators beside its own who say the same; `against`: the most who say the same as each other, not as it."""
    if not has_others:
        return Standing.ALONE
    if against >= OTHERS_NEEDED and against > friends + 1:
        return Standing.DIFFERS
    return Standing.DISPUTED if against >= friends + 1 else Standing.AGREES


def _near(given: Sequence[Print]) -> NDArray[np.bool_]:
    """Which answers are within the bound of each other, `[answers, answers]`: `distance` for all of them at once."""
    near = np.eye(len(given), dtype=np.bool_)
    sizes = np.array([len(one.numbers) for one in given])
    for size in np.unique(sizes[sizes % NUMBERS == 0]):
        rows = np.flatnonzero(sizes == size)
        turns = np.array([given[int(row)].numbers for row in rows], dtype=np.float64).reshape(len(rows), -1, NUMBERS)
        lengths = np.linalg.norm(turns, axis=2)
        squares = lengths[:, None] ** 2 + lengths[None, :] ** 2 - 2.0 * np.einsum("itn,jtn->ijt", turns, turns)
        longest = np.maximum(lengths[:, None], lengths[None, :])
        near[np.ix_(rows, rows)] = (np.sqrt(np.maximum(squares, 0.0)) <= APART * longest).all(axis=2) & bool(size)
    np.fill_diagonal(near, True)
    return near


def _largest_side(foes: NDArray[np.int64], near: NDArray[np.bool_], numbers: NDArray[np.int64]) -> int:
    """Among those who differ from a server: how many operators say what one of them says, at their most."""
    if not len(foes):
        return 0
    belongs = numbers[foes, None] == np.unique(numbers[foes])
    # Who says the same as the same others is one side, and is counted once. In float32, whose products are quick.
    sides = np.unique(np.packbits(near[np.ix_(foes, foes)], axis=1), axis=0)
    agreeing = np.unpackbits(sides, axis=1, count=len(foes)).astype(np.float32) @ belongs.astype(np.float32) > 0
    return int(agreeing.sum(axis=1).max())


def _over(found: list[Finding]) -> Finding:
    """Of the findings of each round, oldest first, the one that stands."""
    compared = [finding for finding in found if finding.standing is not Standing.ALONE][-ROUNDS_REMEMBERED:]
    if not compared:
        return found[-1]
    differing = [finding for finding in compared if finding.standing is Standing.DIFFERS]
    if len(differing) >= ROUNDS_NEEDED:
        return differing[-1]
    last = compared[-1]
    if last.standing is Standing.DIFFERS:
        # Once says nothing yet.
        return Finding(Standing.DISPUTED, last.round, last.blocks, last.whole, last.against)
    return last


def _gravity(finding: Finding) -> int:
    return (Standing.ALONE, Standing.AGREES, Standing.DISPUTED, Standing.DIFFERS).index(finding.standing)


@dataclass(frozen=True, slots=True)
class WrongAnswers:
    """A server's newest answers, so many in a row, that are wrong by themselves: the newest one's round, blocks and fault."""

    round: int
    blocks: Span
    what: str
    times: int


def with_wrong(found: Mapping[Key, Finding], wrong: Mapping[Key, WrongAnswers]) -> dict[Key, Finding]:
    """What is wrong by itself needs no comparison, and comes before every one."""
    own = {key: Finding(Standing.WRONG, one.round, one.blocks, wrong=one.what, times=one.times) for key, one in wrong.items()}
    return {**found, **own}
