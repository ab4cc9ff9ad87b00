"""A logit lens: what the model would say next, if it ended after this block. One row for each border between two blocks.

The prompt goes through the blocks one by one, each in a session of its own on one block of a server's span; norm and head
are computed here. Nothing of it is Petals' or OpenAI's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from blockserver.client.session import FindRoute, Session
from blockserver.gateway.voice import Voice
from swarm.routing import Hop, Route
from swarm.wire.spans import Span

MAX_TOKENS = 512
"""Of a prompt: all of it goes to every block apart."""
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Guess:
    token: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Row:
    """After so many blocks; 0 is the embedding itself."""

    blocks: int
    peer: str | None
    """Whose block came last."""
    guesses: tuple[Guess, ...]

    def document(self) -> dict[str, Any]:
        top = [{"token": g.token, "text": g.text, "probability": round(g.probability, 6)} for g in self.guesses]
        return {"blocks": self.blocks, "peer": self.peer, "top": top}


class _Along:
    """Finds for one block after the other the server of a chain that was chosen at the beginning, and any other one later:
    with a chain chosen for each block apart, the DHT would be read as often as there are blocks."""

    def __init__(self, find: FindRoute, chain: Route) -> None:
        self._find, self._chain = find, chain

    async def __call__(self, span: Span, avoid: Collection[str]) -> Route:
        for hop in self._chain:
            if hop.span.covers(span) and hop.peer_id not in avoid:
                return (Hop(hop.peer_id, span),)
        return await self._find(span, avoid)


async def look_through(voice: Voice, prompt: Sequence[int], top: int) -> list[Row]:
    """Rows from the embedding to the last block. Raises MissingBlocks or another RemoteError where the swarm cannot serve."""
    model = voice.model
    find = _Along(model.find_route, await model.find_route(model.facts.whole, frozenset()))
    hidden = await asyncio.to_thread(model.ends.embed, torch.tensor([list(prompt)]))
    rows = [await _row(voice, 0, None, hidden, top)]
    for block in model.facts.whole:
        span = Span(block, block + 1)
        async with Session(model.p2p, model.prefix, span, find, len(prompt), model.limits, model.patience) as session:
            hidden = await session.step(hidden)
            rows.append(await _row(voice, block + 1, session.route[0].peer_id, hidden, top))
    return rows


async def _row(voice: Voice, blocks: int, peer: str | None, hidden: torch.Tensor, top: int) -> Row:
    logits = await asyncio.to_thread(voice.model.ends.logits, hidden[:, -1:])
    chances, tokens = logits[0].float().softmax(-1).topk(min(top, logits.shape[-1]))
    guesses = zip(tokens.tolist(), chances.tolist(), strict=True)
    return Row(blocks, peer, tuple(Guess(token, voice.spell(token), chance) for token, chance in guesses))
