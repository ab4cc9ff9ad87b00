"""Sessions over runs of blocks, one after another, for rows that go together: a cache that can be looked into.

With one run this is a plain session. With several, hidden states come back at each boundary between them, where they may be
noted or changed. Knows sessions; not tokens, not padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch

from blockserver.client.inspect.walk import Stops, walk
from blockserver.client.model import PREFILL_TOKENS
from blockserver.client.routes import Router
from blockserver.client.session import Session
from blockserver.client.training.gradients import Runs
from swarm.routing import Route
from swarm.wire.spans import Span


class Lane:
    """`model_session` is a session over the whole model, as a pattern for those made here. `position` tokens are in it."""

    def __init__(self, model_session: Session, router: Router, parts: Iterable[Span]) -> None:
        self.sessions = {part: dataclasses.replace(model_session, span=part, find_route=router) for part in parts}
        self.span = Span(min(part.start for part in self.sessions), max(part.end for part in self.sessions))

    @property
    def parts(self) -> tuple[Span, ...]:
        return tuple(self.sessions)

    @property
    def position(self) -> int:
        """Of the last run of blocks; within a step, and where one failed, the others are further."""
        return self.sessions[self.parts[-1]].position

    @property
    def route(self) -> Route:
        return tuple(hop for session in self.sessions.values() for hop in session.route)

    async def step(
        self,
        part: Span,
        hidden: torch.Tensor,
        rows: torch.Tensor | None = None,
        prompts: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of new tokens through `part`. `rows` `[batch]`: before that, row i takes over
        what row `rows[i]` holds. `prompts` `[blocks of the whole lane, batch, prefix, hidden]`."""
        at_once = max(1, PREFILL_TOKENS // hidden.shape[0])
        outputs = []
        for start in range(0, hidden.shape[1], at_once):
            piece = hidden[:, start : start + at_once]
            within = self._prompts(prompts, part, start, start + piece.shape[1])
            outputs.append(await self.sessions[part].step(piece, hypo_ids=rows, prompts=within))
            rows = None
        return torch.cat(outputs, dim=1)

    def rollback(self, position: int) -> None:
        for session in self.sessions.values():
            session.rollback(position)

    async def close(self) -> None:
        for session in self.sessions.values():
            await session.close()

    def _prompts(self, prompts: torch.Tensor | None, part: Span, start: int, end: int) -> torch.Tensor | None:
        """Those of these positions of the step: prompts belong to its first ones."""
        if prompts is None or prompts.shape[2] <= start:
            return None
        return prompts[part.start - self.span.start : part.end - self.span.start, :, start:end]


class BlockSession:
    """Hidden states in, hidden states out, with a cache on the servers. Use it as a context manager."""

    def __init__(self, runs: Runs, lane: Lane, stops: Stops) -> None:
        self._runs = runs
        self._lane = lane
        self._stops = stops

    @property
    def position(self) -> int:
        """Tokens in the cache."""
        return self._lane.position

    @property
    def route(self) -> Route:
        return self._lane.route

    @torch.no_grad()
    def step(
        self, hidden: torch.Tensor, *, hypo_ids: torch.Tensor | None = None, prompts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of the tokens that follow those so far -> those after the last block."""

        def through(part: Span, given: torch.Tensor) -> torch.Tensor:
            return self._runs.run(self._lane.step(part, given, hypo_ids, prompts))

        return walk(hidden, self._lane.parts, through, self._stops)[0]

    def rollback(self, position: int) -> None:
        """The next step follows the first `position` tokens; what came after them is forgotten."""
        self._lane.rollback(position)

    def close(self) -> None:
        """May be called twice."""
        if not self._runs.closed:
            self._runs.run(self._lane.close())

    def __enter__(self) -> BlockSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
