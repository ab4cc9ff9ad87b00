"""Errors that clients paste: which blocks they miss, in Petals' two wordings and in ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MissingBlocks
from swarm.routing import Candidate, missing
from swarm.wire.complaints import missing_blocks
from swarm.wire.spans import Span

OLD = (
    "MissingBlocksError: No servers holding blocks 0 are online. You can check the public swarm's state at "
    "http://health.petals.ml/ If there are not enough servers, please connect your GPU: …"
)
NEW = (
    "petals.client.routing.sequence_manager.MissingBlocksError: No servers holding blocks [0, 1, 2] are online. "
    "You can check the public swarm's state at https://health.petals.dev If there are not enough servers, please …"
)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (OLD, {0}),
        (NEW, {0, 1, 2}),
        (OLD.replace("blocks 0", "blocks 3, 4"), {3, 4}),
        ('Traceback (most recent call last):\n  File "a.py", line 12\n' * 90 + NEW, {0, 1, 2}),
        ("sepal: blocks 4–7 and block 9 have no server", {4, 5, 6, 7, 9}),
        ("block 12 has no server", {12}),
        ("No servers holding blocks [] are online", set()),
        ("blocks 4–7 are slow", set()),
        ("", set()),
        ("No servers holding blocks 99999999999999999999 are online", set()),
    ],
)
def test_the_blocks_are_found(text: str, blocks: set[int]) -> None:
    assert missing_blocks(text) == blocks


@given(st.sets(st.integers(0, 60), max_size=12))
def test_our_own_errors_say_their_blocks_so_that_they_can_be_read_back(held: set[int]) -> None:
    candidates = [Candidate("a", Span(block, block + 1)) for block in held]
    error = missing(candidates, Span(0, 61))
    assert isinstance(error, MissingBlocks) and missing_blocks(str(error)) == set(error.blocks)


@given(st.text(max_size=200))
def test_whatever_the_text_nothing_is_raised(text: str) -> None:
    assert all(0 <= block < 2_048 for block in missing_blocks(text + " have no server"))
