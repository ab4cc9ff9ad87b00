"""Guesses at what comes next, without any server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserver.client.drafts import FEWEST_GUESSES, MOST_GUESSES, Drafts, Eagerness, PromptLookup


@pytest.mark.parametrize(
    ("text", "guesses"),
    [
        ([1, 2, 3, 4, 9, 1, 2], [3, 4, 9, 1]),
        ([7, 1, 2, 5, 8, 1, 2, 6, 1, 2], [6, 1, 2, 6]),
        ([1, 2, 1, 2, 1, 2], [1, 2, 1, 2]),
        ([3, 3, 3], [3, 3, 3, 3]),
        ([1, 2, 3, 4], []),
        ([1], []),
        ([], []),
    ],
)
def test_a_lookup_continues_as_the_text_did_before(text: list[int], guesses: list[int]) -> None:
    assert PromptLookup().propose(text, 4) == guesses


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 8))
def test_a_lookup_gives_as_many_guesses_as_wanted_or_none(text: list[int], most: int) -> None:
    lookup: Drafts = PromptLookup()
    assert len(lookup.propose(text, most)) in (0, most)


def test_eagerness_grows_with_right_guesses_and_falls_with_wrong_ones() -> None:
    eager = Eagerness()
    for _ in range(3):
        eager.learned(eager.now, eager.now)
    assert eager.now == MOST_GUESSES
    eager.learned(15, 6)
    assert eager.now == 7
    eager.learned(7, 0)
    assert eager.now == FEWEST_GUESSES
    eager.learned(0, 0)
    assert eager.now == FEWEST_GUESSES
