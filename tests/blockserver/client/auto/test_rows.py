"""Rows go together where their padding is the same, and come back to where they were."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockserver.client.auto.rows import Rows, left_padding, put_back, take, together, within
from swarm.errors import LocalError


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 2))
def test_taken_apart_and_put_back_nothing_but_padding_is_lost(padding: list[int], prefix: int) -> None:
    columns = prefix + 4
    hidden = torch.arange(1.0, len(padding) * columns * 2 + 1).reshape(len(padding), columns, 2)
    groups = together(padding)
    parts = [take(hidden, rows, prefix) for rows in groups]
    for rows, part in zip(groups, parts, strict=True):
        assert part.shape == (len(rows.indices), columns - rows.padding, 2)
        assert bool((part != 0).all())
    whole = put_back(parts, groups, len(padding), prefix)
    for row, columns_of_padding in enumerate(padding):
        gap = slice(prefix, prefix + columns_of_padding)
        assert not whole[row, gap].any()
        expected = hidden[row].clone()
        expected[gap] = 0
        assert whole[row].equal(expected)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_every_row_is_in_one_group(padding: list[int]) -> None:
    groups = together(padding)
    assert sorted(index for rows in groups for index in rows.indices) == list(range(len(padding)))
    assert all(padding[index] == rows.padding for rows in groups for index in rows.indices)


def test_gradients_come_through() -> None:
    hidden = torch.randn(3, 5, 2, requires_grad=True)
    groups = together([2, 0, 2])
    put_back([take(hidden, rows, 1) * 3 for rows in groups], groups, 3, 1).sum().backward()
    expected = torch.full((3, 5, 2), 3.0)
    expected[[0, 2], 1:3] = 0
    assert hidden.grad is not None and hidden.grad.equal(expected)


def test_padding_is_counted_from_the_left() -> None:
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]])
    assert left_padding(mask, 3, 4, right_allowed=True) == (2, 0, 1)
    assert left_padding(None, 2, 9, right_allowed=False) == (0, 0)


@pytest.mark.parametrize(
    ("mask", "complaint"),
    [
        ([[0, 0, 0]], "row 0 of the attention mask holds no token"),
        ([[1, 1, 1], [1, 0, 1]], "row 1 has padding between its tokens"),
        ([[1, 1, 0]], "row 0 is padded on the right"),
        ([[1, 1]], r"must be \[batch, tokens\]"),
    ],
)
def test_what_servers_cannot_be_told_is_refused(mask: list[list[int]], complaint: str) -> None:
    with pytest.raises(LocalError, match=complaint):
        left_padding(torch.tensor(mask), len(mask), 3, right_allowed=False)


def test_beams_change_places_among_rows_of_the_same_padding() -> None:
    rows = Rows((1, 2, 4), 3)
    own = within(torch.tensor([0, 4, 1, 3, 4]), rows)
    assert own is not None and own.tolist() == [2, 0, 2]
    assert within(torch.tensor([3, 1, 2, 0, 4]), rows) is None
    with pytest.raises(LocalError, match="rows of different padding"):
        within(torch.tensor([0, 0, 2, 3, 4]), rows)
