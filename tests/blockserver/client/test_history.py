"""What a history replays is what a server's cache holds, whatever beams and rollbacks did to it."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from blockserver.client.history import History
from blockserver.wire.protocol import BlockInput

BATCH = 3


class PlainCache:
    """The slow way: what a server does at each step, done at once."""

    def __init__(self) -> None:
        self.hidden = torch.empty(BATCH, 0, 2)

    def add(self, given: BlockInput) -> None:
        if given.rows is not None:
            self.hidden = self.hidden[given.rows]
        added = given.hidden.clone()
        if given.prompts is not None:
            # A prompt counts for its position and its block; here they are summed up into the second channel.
            added[:, : given.prompts.shape[2], 1] += given.prompts.sum(dim=(0, 3)).expand(BATCH, -1)
        self.hidden = torch.cat([self.hidden, added], dim=1)

    def cut(self, position: int) -> None:
        self.hidden = self.hidden[:, :position]


@st.composite
def changes(draw: st.DrawFn) -> list[BlockInput | float]:
    """Steps, and rollbacks as shares of the position."""
    made: list[BlockInput | float] = []
    source = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 3)) == 0:
            made.append(draw(st.floats(0.0, 1.0)))
            continue
        tokens = draw(st.integers(1, 5))
        rows = draw(st.none() | st.lists(st.integers(0, BATCH - 1), min_size=BATCH, max_size=BATCH))
        prefix = draw(st.integers(0, tokens))
        shape = (2, draw(st.sampled_from([1, BATCH])), prefix, 2)
        made.append(
            BlockInput(
                torch.randn(BATCH, tokens, 2, generator=source),
                torch.randn(shape, generator=source) if prefix else None,
                None if rows is None else torch.LongTensor(rows),
            )
        )
    return made


@given(changes(), st.integers(1, 6))
def test_a_replay_fills_another_cache_with_the_same(made: list[BlockInput | float], most: int) -> None:
    history, cache = History(), PlainCache()
    for change in made:
        if isinstance(change, float):
            position = int(change * history.tokens)
            history.cut(position)
            cache.cut(position)
        else:
            history.add(change)
            cache.add(change)
        assert history.tokens == cache.hidden.shape[1]
    again = PlainCache()
    for step in history.replay(most):
        assert step.rows is None
        assert 1 <= step.hidden.shape[1] <= most
        again.add(step)
    torch.testing.assert_close(again.hidden, cache.hidden)


@given(changes(), changes())
def test_an_undone_step_leaves_no_trace(before: list[BlockInput | float], after: list[BlockInput | float]) -> None:
    history = History()
    for change in before:
        if isinstance(change, BlockInput):
            history.add(change)
    kept = [step.hidden for step in history.replay(4)]
    history.mark()
    for change in after:
        if isinstance(change, BlockInput):
            history.add(change)
    history.undo()
    for step, right in zip(history.replay(4), kept, strict=True):
        torch.testing.assert_close(step.hidden, right)
