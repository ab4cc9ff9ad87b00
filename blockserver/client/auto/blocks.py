"""The blocks of a model that runs elsewhere, as a sequence: call them, slice them, choose who serves them, look in between.

`model.blocks[4:10](hidden)` enters at block 4 and stops after block 9. Without a cache; differentiable. A session over the
same blocks keeps a cache. Knows hidden states; not tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from blockserver.client.auto.lanes import BlockSession, Lane
from blockserver.client.auto.rows import Rows, put_back, take
from blockserver.client.inspect.walk import Edit, Stops, cut, everywhere, segments, walk
from blockserver.client.model import RemoteModel
from blockserver.client.passes.chain import Chain
from blockserver.client.passes.route_memory import ChosenPath, RouteMemory, Spread
from blockserver.client.routes import Router
from blockserver.client.training.gradients import Runs, through_swarm
from swarm.errors import LocalError
from swarm.routing import Hop, Route, Wanted
from swarm.wire.spans import Span


class RemoteBlocks:
    """Blocks `span` of `remote`, reached from `runs`' loop, by way of `router`."""

    def __init__(self, runs: Runs, remote: RemoteModel, span: Span, router: Router | None = None) -> None:
        self.span = span
        self._remembering = router or RouteMemory(remote.router, remote.facts.whole)
        self._runs = runs
        self._remote = remote
        self._chain = Chain.of(remote, self._remembering)
        chosen = isinstance(self._remembering, ChosenPath)
        self._training_chain = self._chain if chosen else Chain.of(remote, Spread(remote.router))

    def __len__(self) -> int:
        return len(self.span)

    def __getitem__(self, blocks: int | slice) -> RemoteBlocks:
        """Blocks by their numbers in the model: `blocks[4]`, `blocks[4:10]`. Steps other than 1 have no meaning here."""
        return RemoteBlocks(self._runs, self._remote, self._chosen(blocks), self._remembering)

    def through(self, *path: Hop) -> RemoteBlocks:
        """The same blocks by way of these servers only: `Hop(peer_id, Span(0, 10))` one after another."""
        return RemoteBlocks(self._runs, self._remote, self.span, ChosenPath(path))

    def route(self) -> Route:
        """Who would be asked now, in order. Raises MissingBlocks."""
        return self._runs.run(self._remembering.find(Wanted(self.span)))

    def __call__(
        self, hidden: torch.Tensor, *, prompts: torch.Tensor | None = None, edits: Mapping[int, Edit] | None = None
    ) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` -> those after the last block. `edits` by boundary: b is what enters block b.

        `prompts` `[blocks, batch, prefix, hidden]` are added to the first positions of what enters each block. All rows are
        taken to begin at the first column. Raises MissingBlocks or another RemoteError where the swarm cannot serve.
        """
        return self.walk(hidden, Stops(edits or {}), prompts)[0]

    def boundaries(
        self, hidden: torch.Tensor, *, prompts: torch.Tensor | None = None, edits: Mapping[int, Edit] | None = None
    ) -> list[torch.Tensor]:
        """What enters each block, and last what leaves the last one: `len(blocks) + 1` tensors."""
        _, seen = self.walk(hidden, everywhere(self.span, edits), prompts)
        return [seen[boundary] for boundary in sorted(seen)]

    def walk(
        self,
        hidden: torch.Tensor,
        stops: Stops,
        prompts: torch.Tensor | None = None,
        groups: Sequence[Rows] = (),
        prefix: int = 0,
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """See `inspect.walk`. Rows of the `groups` go apart, without their padding, which comes after `prefix` columns."""
        stops.check(self.span)
        if prompts is not None and (prompts.ndim != 4 or prompts.shape[0] != len(self.span)):
            raise LocalError(f"prompts are [{len(self.span)} blocks, batch, prefix, hidden], not {list(prompts.shape)}")

        groups = groups or (Rows(tuple(range(hidden.shape[0])), 0),)

        def through(part: Span, given: torch.Tensor) -> torch.Tensor:
            of_part = self._of(prompts, part)
            training = torch.is_grad_enabled() and (given.requires_grad or (of_part is not None and of_part.requires_grad))
            chain = self._training_chain if training else self._chain
            outputs = [
                through_swarm(self._runs, chain, part, take(given, rows, prefix), _of_rows(of_part, rows)) for rows in groups
            ]
            return put_back(outputs, groups, hidden.shape[0], prefix)

        return walk(hidden, cut(self.span, stops), through, stops)

    def lane(self, max_length: int, parts: tuple[Span, ...]) -> Lane:
        """Sessions for `parts` of these blocks, for rows that go together; `max_length` tokens."""
        if isinstance(self._remembering, ChosenPath):
            router: Router = self._remembering
        elif len(parts) == 1:
            router = self._remote.router
        else:
            # Of its own: a route for a session depends on who has cache left, and the sessions of all parts share it.
            router = RouteMemory(self._remote.router, self.span)
        return Lane(self._remote.session(max_length), router, parts)

    def inference_session(self, max_length: int, edits: Mapping[int, Edit] | None = None) -> BlockSession:
        """A cache of up to `max_length` tokens on these blocks' servers; use it as a context manager."""
        stops = Stops(edits or {})
        stops.check(self.span)
        return BlockSession(self._runs, self.lane(max_length, segments(self.span, stops.edits)), stops)

    def _of(self, prompts: torch.Tensor | None, part: Span) -> torch.Tensor | None:
        return None if prompts is None else prompts[part.start - self.span.start : part.end - self.span.start]

    def _chosen(self, blocks: int | slice) -> Span:
        if isinstance(blocks, int):
            blocks = slice(blocks, blocks + 1)
        start = self.span.start if blocks.start is None else blocks.start
        end = self.span.end if blocks.stop is None else blocks.stop
        if blocks.step not in (None, 1) or not self.span.start <= start < end <= self.span.end:
            raise LocalError(f"blocks {start}:{end} are not a run within {self.span}")
        return Span(start, end)


def _of_rows(prompts: torch.Tensor | None, rows: Rows) -> torch.Tensor | None:
    return None if prompts is None else prompts[:, list(rows.indices)]
