"""Padded batches, for servers that know no attention masks: rows with padding in the same places go together, without it.

A row without its padding gives what transformers gives for it with a mask: positions count from the first token. Where that
does not hold, the batch is refused. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from swarm.errors import LocalError


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a batch, and how many columns of padding each of them begins with."""

    indices: tuple[int, ...]
    padding: int


def left_padding(mask: torch.Tensor | None, batch: int, tokens: int, *, right_allowed: bool) -> tuple[int, ...]:
    """Columns of padding before the first token of each row. `mask` `[batch, tokens]`, 0 for padding.

    Padding behind the last token is as good as tokens where nothing follows it (`right_allowed`): no token sees it.
    LocalError where a row has no token, or padding between its tokens.
    """
    if mask is None:
        return (0,) * batch
    if mask.ndim != 2 or mask.shape != (batch, tokens):
        raise LocalError(f"attention_mask must be [batch, tokens], here {[batch, tokens]}, not {list(mask.shape)}")
    visible = mask.to(device="cpu").bool()
    return tuple(_left(row, number, right_allowed) for number, row in enumerate(visible))


def _left(row: torch.Tensor, number: int, right_allowed: bool) -> int:
    places = row.nonzero().flatten()
    if not places.numel():
        raise LocalError(f"row {number} of the attention mask holds no token")
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 != places.numel():
        raise LocalError(f"row {number} has padding between its tokens, which servers cannot be told of")
    if last + 1 != row.numel() and not right_allowed:
        raise LocalError(f"row {number} is padded on the right; pad on the left (padding_side='left') to go on from it")
    return first


def together(padding: Sequence[int]) -> tuple[Rows, ...]:
    """Rows that begin at the same column."""
    by_padding: dict[int, list[int]] = defaultdict(list)
    for row, columns in enumerate(padding):
        by_padding[columns].append(row)
    return tuple(Rows(tuple(rows), columns) for columns, rows in sorted(by_padding.items()))


def take(hidden: torch.Tensor, rows: Rows, prefix: int = 0) -> torch.Tensor:
    """These rows of `[batch, columns, hidden]` without their padding, which comes after `prefix` columns that all have."""
    chosen = hidden[list(rows.indices)]
    if not rows.padding:
        return chosen
    return torch.cat([chosen[:, :prefix], chosen[:, prefix + rows.padding :]], dim=1)


def put_back(parts: Sequence[torch.Tensor], groups: Sequence[Rows], batch: int, prefix: int = 0) -> torch.Tensor:
    """The batch again, zeros where there is padding. Keeps gradients."""
    if len(groups) == 1 and not groups[0].padding:
        return parts[0]
    whole: list[torch.Tensor | None] = [None] * batch
    for part, rows in zip(parts, groups, strict=True):
        gap = part.new_zeros(part.shape[0], rows.padding, part.shape[2])
        padded = torch.cat([part[:, :prefix], gap, part[:, prefix:]], dim=1)
        for row, index in zip(padded, rows.indices, strict=True):
            whole[index] = row
    return torch.stack([row for row in whole if row is not None])


def within(order: torch.Tensor, rows: Rows) -> torch.Tensor | None:
    """`order` of the whole batch (row i takes over what row `order[i]` holds) as an order of these rows; None where they stay.

    LocalError where a row would take over what rows of other padding hold, which are on other sessions.
    """
    places = {index: place for place, index in enumerate(rows.indices)}
    try:
        own = torch.tensor([places[int(order[index])] for index in rows.indices], dtype=torch.int64)
    except KeyError:
        raise LocalError("beams cannot change between rows of different padding") from None
    return None if own.tolist() == list(range(len(own))) else own
