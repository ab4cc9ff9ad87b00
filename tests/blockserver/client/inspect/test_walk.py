"""Where hidden states stop on their way, what is noted, what is changed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockserver.client.inspect.walk import Stops, cut, everywhere, segments, walk
from swarm.errors import LocalError
from swarm.wire.spans import Span

SPAN = Span(2, 7)


def count(part: Span, hidden: torch.Tensor) -> torch.Tensor:
    """Each block adds one."""
    return hidden + len(part)


@given(st.sets(st.integers(0, 9)))
def test_segments_cover_the_span_and_are_cut_where_asked(boundaries: set[int]) -> None:
    parts = segments(SPAN, boundaries)
    assert [block for part in parts for block in part] == list(SPAN)
    assert {part.start for part in parts} - {SPAN.start} == {b for b in boundaries if SPAN.start < b < SPAN.end}


def test_without_stops_there_is_one_part() -> None:
    assert cut(SPAN, Stops()) == (SPAN,)


def test_every_boundary_is_noted() -> None:
    stops = everywhere(SPAN)
    hidden, seen = walk(torch.zeros(1, 1, 1), cut(SPAN, stops), count, stops)
    assert hidden.item() == 5
    assert {boundary: state.item() for boundary, state in seen.items()} == {2: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5}


def test_edits_replace_or_look_and_what_is_noted_comes_after_them() -> None:
    looked: list[float] = []
    stops = Stops(
        {2: lambda hidden: hidden + 100, 5: lambda hidden: looked.append(hidden.item()), 7: torch.neg}, frozenset({2, 7})
    )
    hidden, seen = walk(torch.zeros(1, 1, 1), cut(SPAN, stops), count, stops)
    assert looked == [103] and hidden.item() == -105
    assert {boundary: state.item() for boundary, state in seen.items()} == {2: 100, 7: -105}


def test_an_edit_must_keep_the_shape() -> None:
    stops = Stops({4: lambda hidden: hidden[0]})
    with pytest.raises(LocalError, match=r"boundary 4 gave \[1, 1\] in place of \[1, 1, 1\]"):
        walk(torch.zeros(1, 1, 1), cut(SPAN, stops), count, stops)


@pytest.mark.parametrize("boundary", [1, 8])
def test_boundaries_elsewhere_are_refused(boundary: int) -> None:
    with pytest.raises(LocalError, match=f"boundary {boundary} is not within 2 to 7"):
        Stops({boundary: torch.neg}).check(SPAN)
