"""All that went into one server of a chain, so that another server can be brought to the same state.

Knows hidden states, deep prompts, and how beam search and rollback change what a server's cache holds; nothing of peers.
Reordering is only noted, and done when something is replayed: a beam search reorders at each token, servers die rarely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from blockserver.wire.protocol import BlockInput


class History:
    """Inputs `[batch, tokens, hidden]` in order. A piece's `rows` say how the cache was reordered just before it."""

    def __init__(self) -> None:
        self.tokens = 0
        self._pieces: list[BlockInput] = []
        self._after: torch.Tensor | None = None
        self._mark: tuple[int, int, torch.Tensor | None] = (0, 0, None)

    @property
    def batch(self) -> int:
        """Rows; 0 while nothing is kept."""
        return self._pieces[0].hidden.shape[0] if self._pieces else 0

    def add(self, given: BlockInput) -> None:
        """Deep prompts belong to the first positions only, so those become a piece of their own."""
        rows, self._after = _composed(self._after, given.rows), None
        prefix = 0 if given.prompts is None else given.prompts.shape[2]
        if prefix:
            self._pieces.append(BlockInput(given.hidden[:, :prefix], given.prompts, _long(rows)))
            rows = None
        if given.hidden.shape[1] > prefix:
            self._pieces.append(BlockInput(given.hidden[:, prefix:], None, _long(rows)))
        self.tokens += given.hidden.shape[1]

    def cut(self, position: int) -> None:
        """Forgets the tokens from `position` on. Their reorderings stay: the rows before them have changed places for good."""
        while self.tokens > position:
            last = self._pieces.pop()
            kept = last.hidden.shape[1] - (self.tokens - position)
            if kept > 0:
                prompts = None if last.prompts is None else last.prompts[:, :, :kept]
                self._pieces.append(replace(last, hidden=last.hidden[:, :kept], prompts=prompts))
                self.tokens = position
            else:
                self._after = _composed(last.rows, self._after)
                self.tokens -= last.hidden.shape[1]
        self.mark()

    def copy(self) -> History:
        """As it is now; what comes later changes only the original. Shares the tensors, which nobody writes to."""
        other = History()
        other.tokens, other._pieces, other._after = self.tokens, list(self._pieces), self._after
        return other

    def mark(self) -> None:
        """A step begins: `undo` goes back to here."""
        self._mark = (len(self._pieces), self.tokens, self._after)

    def undo(self) -> None:
        """Forgets what was added since the mark, reorderings as well."""
        pieces, self.tokens, self._after = self._mark
        del self._pieces[pieces:]

    def replay(self, most_tokens: int) -> Iterator[BlockInput]:
        """The pieces as they lie in the cache now, none with rows, put together into steps of up to `most_tokens`."""
        waiting: list[torch.Tensor] = []
        for piece in self._in_present_order():
            if piece.prompts is None:
                waiting.append(piece.hidden)
                continue
            yield from _steps(waiting, most_tokens)
            waiting = []
            yield from _steps_with_prompts(piece, most_tokens)
        yield from _steps(waiting, most_tokens)

    def _in_present_order(self) -> list[BlockInput]:
        order = self._after
        ordered: list[BlockInput] = []
        for piece in reversed(self._pieces):
            prompts = None if piece.prompts is None else _reordered(piece.prompts, order, 1)
            ordered.append(BlockInput(_reordered(piece.hidden, order, 0), prompts))
            order = _composed(piece.rows, order)
        return ordered[::-1]


def _steps(waiting: list[torch.Tensor], most_tokens: int) -> Iterator[BlockInput]:
    if waiting:
        for part in torch.split(torch.cat(waiting, dim=1), most_tokens, dim=1):
            yield BlockInput(part)


def _steps_with_prompts(piece: BlockInput, most_tokens: int) -> Iterator[BlockInput]:
    assert piece.prompts is not None
    parts = zip(torch.split(piece.hidden, most_tokens, dim=1), torch.split(piece.prompts, most_tokens, dim=2), strict=True)
    for hidden, prompts in parts:
        yield BlockInput(hidden, prompts)


def _reordered(tensor: torch.Tensor, order: torch.Tensor | None, dim: int) -> torch.Tensor:
    """Prompts may have one row for the whole batch."""
    if order is None or tensor.shape[dim] != order.shape[0]:
        return tensor
    return tensor.index_select(dim, order)


def _composed(first: torch.Tensor | None, then: torch.Tensor | None) -> torch.Tensor | None:
    """Both reorderings as one: row i takes what row `first[then[i]]` held."""
    if first is None or then is None:
        return then if first is None else first
    return first.index_select(0, then)


def _long(rows: torch.Tensor | None) -> torch.LongTensor | None:
    return None if rows is None else torch.LongTensor(rows)
