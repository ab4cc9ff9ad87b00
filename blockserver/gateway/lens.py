"""A logit lens for callers: what the model would say next, if it ended after this block, and whose block that was.

The prompt goes through the blocks one by one, without a session; norm and head are computed here. What a row is, is
`blockserver.client.inspect.lens`'s; this file adds words and peers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from blockserver.client.inspect.lens import LensRow, read
from blockserver.client.passes.chain import Chain
from blockserver.gateway.voice import Voice
from swarm.wire.spans import Span

MAX_TOKENS = 512
"""Of a prompt: all of it goes to every block apart."""
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """`peer` computed the block that came last; None before the first one."""

    seen: LensRow
    words: tuple[str, ...]
    peer: str | None

    def document(self) -> dict[str, Any]:
        said = zip(self.seen.tokens, self.words, self.seen.chances, strict=True)
        top = [{"token": token, "text": text, "probability": round(chance, 6)} for token, text, chance in said]
        return {"blocks": self.seen.boundary, "peer": self.peer, "top": top}


async def look_through(voice: Voice, prompt: Sequence[int], top: int) -> list[Row]:
    """Rows from the embedding to the last block. Raises MissingBlocks or another RemoteError where the swarm cannot serve."""
    chain, ends = Chain.of(voice.model), voice.model.ends
    hidden = await asyncio.to_thread(ends.embed, torch.tensor([list(prompt)]))
    rows = [await _row(voice, 0, hidden, top, None)]
    for block in voice.model.facts.whole:
        hidden, trace = await chain.forward(hidden, Span(block, block + 1))
        rows.append(await _row(voice, block + 1, hidden, top, trace[0][-1].hop.peer_id))
    return rows


async def _row(voice: Voice, boundary: int, hidden: torch.Tensor, top: int, peer: str | None) -> Row:
    seen = await asyncio.to_thread(read, voice.model.ends, boundary, hidden, min(top, voice.model.facts.vocab_size))
    return Row(seen, tuple(voice.spell(token) for token in seen.tokens), peer)
