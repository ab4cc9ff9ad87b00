"""Who answers differently: two of others' operators against one, at two rounds; a tie blames nobody; a crowd of one is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.answers.judging import (
    APART,
    OTHERS_NEEDED,
    ROUNDS_NEEDED,
    ROUNDS_REMEMBERED,
    WRONG_NEEDED,
    Answer,
    Finding,
    Question,
    Standing,
    WrongAnswers,
    _near,
    distance,
    judge,
    with_wrong,
)
from swarm.answers.prints import NUMBERS, Print
from swarm.wire.spans import Span

BLOCK = Span(7, 8)


def printed(kind: str, rounding: float = 0.0, seed: int = 0) -> Print:
    """A print of what `kind` of server computes; `rounding` is what its precision costs, as a share."""
    right = np.random.default_rng([ord(letter) for letter in kind]).standard_normal(2 * NUMBERS)
    noise = np.random.default_rng(seed).standard_normal(2 * NUMBERS)
    return Print(8.0, tuple(map(float, right + rounding * noise)))


def told(kinds: Mapping[str, str], rounds: Iterable[int] = (1, 2), whole: bool = False, precision: str = "") -> list[Answer]:
    """Servers by name (`name@operator`; each its own where none is said) and what they compute, the same in each round."""
    return [
        Answer(
            name,
            name.partition("@")[2] or name,
            Question("m", number, Span(4, 9) if whole else BLOCK, whole, precision),
            printed(kind, 0.3, seed=place),
        )
        for number in rounds
        for place, (name, kind) in enumerate(kinds.items())
    ]


def standings(answers: Iterable[Answer]) -> dict[str, str]:
    return {peer: found.standing.value for (_, peer), found in judge(answers).items()}


def test_two_who_agree_at_two_rounds_make_a_third_differ() -> None:
    assert standings(told({"a": "right", "b": "right", "liar": "x"})) == {"a": "agrees", "b": "agrees", "liar": "differs"}
    found = judge(told({"a": "right", "b": "right", "c": "right", "liar": "x"}))["m", "liar"]
    assert (found.against, found.blocks, found.doubted, found.serves_nothing) == (3, BLOCK, True, False)


def test_one_round_is_not_enough() -> None:
    assert standings(told({"a": "right", "b": "right", "liar": "x"}, [1]))["liar"] == "disputed"
    assert ROUNDS_NEEDED == 2


def test_a_tie_blames_nobody() -> None:
    for kinds in ({"a": "x", "b": "y"}, {"a": "x", "b": "x", "c": "y", "d": "y"}, {"a": "x", "b": "y", "c": "z"}):
        assert set(standings(told(kinds)).values()) == {"disputed"}


def test_who_is_alone_is_not_judged() -> None:
    assert standings(told({"a": "x"})) == {"a": "alone"}


def test_servers_of_one_operator_are_one_voice() -> None:
    """A crowd in one network outvotes nobody, and does not speak for itself either."""
    crowd = {f"sybil{n}@net": "x" for n in range(9)}
    assert standings(told({**crowd, "honest": "right"}))["honest"] == "disputed"
    found = standings(told({**crowd, "a": "right", "b": "right"}))
    assert found["a"] == found["b"] == "agrees" and {found[name] for name in crowd} == {"differs"}


def test_a_crowd_at_many_networks_can_frame_one_who_is_right() -> None:
    """It cannot be told from a crowd that is right, which is why little follows from a finding."""
    assert standings(told({"s1": "x", "s2": "x", "honest": "right"}))["honest"] == "differs"


def test_the_smaller_of_two_sides_differs_only_where_the_other_is_larger() -> None:
    found = standings(told({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"}))
    assert found == {"a": "agrees", "b": "agrees", "c": "agrees", "d": "differs", "e": "differs"}


def test_who_answers_rightly_again_is_cleared_after_three_rounds() -> None:
    lied = told({"a": "right", "b": "right", "liar": "x"}, [1, 2])
    for good in range(ROUNDS_REMEMBERED):
        again = told({"a": "right", "b": "right", "liar": "right"}, range(3, 3 + good))
        cleared = good > ROUNDS_REMEMBERED - ROUNDS_NEEDED
        assert standings(lied + again)["liar"] == ("agrees" if cleared else "differs")


def test_who_lies_at_every_second_round_is_not_cleared() -> None:
    answers = [
        answer for n in range(8) for answer in told({"a": "right", "b": "right", "liar": "x" if n % 2 else "right"}, [n])
    ]
    assert standings(answers)["liar"] == "differs"


def test_whole_spans_are_compared_in_one_precision_only() -> None:
    right = told({"a": "right", "b": "right"}, whole=True, precision="none")
    other = told({"coarse": "x"}, whole=True, precision="nf4")
    assert standings(right + other) == {"a": "agrees", "b": "agrees", "coarse": "alone"}
    same = told({"liar": "x"}, whole=True, precision="none")
    assert judge(right + same)["m", "liar"].whole


def test_right_on_the_block_and_wrong_on_the_whole_is_differing() -> None:
    everyone = told({"a": "right", "b": "right", "liar": "right"})
    answers = everyone + told({"a": "right", "b": "right", "liar": "x"}, whole=True, precision="none")
    assert standings(answers) == {"a": "agrees", "b": "agrees", "liar": "differs"}


def test_only_answers_to_the_very_same_question_are_compared() -> None:
    here, there = told({"a": "right", "b": "right"}, [1, 2]), told({"c": "x"}, [3, 4])
    assert standings(here + there)["c"] == "alone"


def test_what_is_wrong_by_itself_comes_before_every_comparison() -> None:
    found = judge(told({"a": "right", "b": "right"}))
    for times in range(1, WRONG_NEEDED + 1):
        both = with_wrong(found, {("m", "a"): WrongAnswers(9, Span(4, 9), "is all zeros", times)})
        assert both["m", "a"] == Finding(Standing.WRONG, 9, Span(4, 9), wrong="is all zeros", times=times)
        assert both["m", "a"].doubted and both["m", "a"].serves_nothing == (times == WRONG_NEEDED)
        assert both["m", "b"] == found["m", "b"]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), min_size=1), st.randoms()
)
def test_order_does_not_matter_and_no_majority_is_ever_blamed(servers: dict[str, tuple[str, int]], draw: object) -> None:
    kinds = {f"{name}@{operator}": kind for name, (kind, operator) in servers.items()}
    answers = told(kinds)
    shuffled = list(answers)
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    found = standings(answers)
    assert standings(shuffled) == found
    for name, (kind, operator) in servers.items():
        own = {of for k, of in servers.values() if k == kind} | {operator}
        larger = [{of for k, of in servers.values() if k == other and of != operator} for other in "xyz" if other != kind]
        blamed = any(len(side) >= OTHERS_NEEDED and len(side) > len(own) for side in larger)
        assert (found[f"{name}@{operator}"] == "differs") == blamed


@given(st.lists(st.tuples(st.sampled_from("xy"), st.floats(0.0, 0.9), st.sampled_from([64, 128])), max_size=6))
def test_all_at_once_is_as_one_by_one(servers: list[tuple[str, float, int]]) -> None:
    given = [replace(p := printed(kind, loss, n), numbers=p.numbers[:size]) for n, (kind, loss, size) in enumerate(servers)]
    near = _near(given)
    for row, one in enumerate(given):
        for column, other in enumerate(given):
            if abs((found := distance(one, other)) - APART) > 1e-6:
                assert near[row, column] == (found <= APART or row == column)


@pytest.mark.parametrize("rounding", [0.01, 0.2, 0.4])
def test_rounding_within_the_bound_is_no_difference(rounding: float) -> None:
    answers = [
        Answer(name, name, Question("m", number, BLOCK), printed("right", loss, seed))
        for number in (1, 2)
        for seed, (name, loss) in enumerate({"a": 0.0, "b": 0.0, "coarse": rounding}.items())
    ]
    assert rounding < APART and standings(answers)["coarse"] == "agrees"
