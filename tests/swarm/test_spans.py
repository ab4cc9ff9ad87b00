from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.wire.spans import Span, in_words, runs


@pytest.mark.parametrize(("start", "end"), [(3, 3), (5, 2), (-1, 4)])
def test_a_span_is_never_empty_reversed_or_negative(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="0 <= start < end"):
        Span(start, end)


@given(st.sets(st.integers(0, 60)))
def test_runs_hold_the_same_blocks_and_no_two_of_them_touch(blocks: set[int]) -> None:
    spans = runs(blocks)
    assert {block for span in spans for block in span} == blocks
    assert all(first.end < second.start for first, second in itertools.pairwise(spans))


def test_people_are_shown_the_last_block_of_a_span() -> None:
    assert Span(12, 18).in_words() == "blocks 12–17"
    assert Span(7, 8).in_words() == "block 7"
    assert in_words(runs([3, 4, 5, 9, 12, 13])) == "blocks 3–5, 9, 12–13"
