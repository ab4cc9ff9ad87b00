"""The logit lens: which tokens the model would say if it stopped at each boundary between blocks.

After nostalgebraist, "interpreting GPT: the logit lens" (2020): the final norm and the head are applied to what enters each
block. Knows hidden states and ids of tokens; text is its caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from blockserver.client.embeddings import Ends
from blockserver.client.model import RemoteModel
from blockserver.client.passes.chain import Chain
from swarm.errors import LocalError
from swarm.wire.spans import Span

MOST_TOKENS = 2_048
"""A pass for each block carries all of them: this is for looking, not for long texts."""
MOST_SHOWN = 100
"""Tokens of one boundary."""


@dataclass(frozen=True, slots=True)
class LensRow:
    """What the model would say after the last token, by the hidden states at `boundary`: 0 enters block 0, and the last one
    leaves the last block, so its first token is what the model does say. `tokens` and `chances` (0 to 1), likeliest first."""

    boundary: int
    tokens: tuple[int, ...]
    chances: tuple[float, ...]


async def logit_lens(model: RemoteModel, input_ids: Sequence[int], top: int = 5, chain: Chain | None = None) -> list[LensRow]:
    """A row for each boundary, after the last of `input_ids`. One pass for each block; no session, nothing is kept.

    LocalError where ids or numbers make no sense, MissingBlocks or another RemoteError where the swarm cannot serve. `chain`
    is for whoever calls often: it remembers who serves which block.
    """
    ids = lens_ids(model, input_ids, top)
    ends, chain = model.ends, chain or Chain.of(model)
    hidden = await asyncio.to_thread(ends.embed, torch.tensor([ids]))
    rows = [await asyncio.to_thread(read, ends, 0, hidden, top)]
    for block in model.facts.whole:
        hidden, _ = await chain.forward(hidden, Span(block, block + 1))
        rows.append(await asyncio.to_thread(read, ends, block + 1, hidden, top))
    return rows


@torch.inference_mode()
def read(ends: Ends, boundary: int, hidden: torch.Tensor, top: int) -> LensRow:
    """Of the last position of hidden states `[1, tokens, hidden]`."""
    chances, tokens = ends.head(hidden[:, -1:])[0, -1].float().softmax(dim=-1).topk(top)
    return LensRow(boundary, tuple(tokens.tolist()), tuple(chances.tolist()))


def lens_ids(model: RemoteModel, input_ids: Sequence[int], top: int) -> list[int]:
    """The ids, or LocalError where they or `top` make no sense."""
    ids = list(input_ids)
    if not 1 <= len(ids) <= MOST_TOKENS:
        raise LocalError(f"the lens takes 1 to {MOST_TOKENS:,} tokens, not {len(ids):,}")
    if not 1 <= top <= min(MOST_SHOWN, model.facts.vocab_size):
        raise LocalError(f"the lens shows 1 to {min(MOST_SHOWN, model.facts.vocab_size)} tokens of a boundary, not {top}")
    strange = [token for token in ids if not 0 <= token < model.facts.vocab_size]
    if strange:
        raise LocalError(f"token {strange[0]} is not within the model's vocabulary of {model.facts.vocab_size:,}")
    return ids
