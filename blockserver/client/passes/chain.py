"""Passes over a chain of servers, each of which may be replaced: forward, and backward over what went forward.

A forward pass notes what went into each hop. A backward pass needs that: servers keep nothing of a forward pass, and one that
has left is replaced by others, which are given the same input. Knows routes and tensors; not tokens, not autograd.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from hivemind.p2p import P2P

from blockserver.client.model import RemoteModel
from blockserver.client.passes import calls
from blockserver.client.passes.route_memory import RouteMemory
from blockserver.client.routes import Router
from blockserver.client.session import Patience
from blockserver.client.stream import Limits
from blockserver.wire.protocol import MAX_TOKENS_PER_STEP
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Hop, Wanted
from swarm.wire.spans import Span

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Passed:
    """One hop and what went into it, `[batch, tokens, hidden]`."""

    hop: Hop
    hidden: torch.Tensor


Trace = tuple[tuple[Passed, ...], ...]
"""For each part of the batch, its hops in order."""


@dataclass
class Chain:
    """`router` is best a `RouteMemory`."""

    p2p: P2P
    prefix: str
    router: Router
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def of(cls, model: RemoteModel, router: Router | None = None) -> Chain:
        """Over the model's servers, or those that `router` names."""
        router = router or RouteMemory(model.router, model.facts.whole)
        return cls(model.p2p, model.prefix, router, model.limits, model.patience)

    async def forward(
        self, hidden: torch.Tensor, span: Span, prompts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Trace]:
        """Hidden states `[batch, tokens, hidden]` through the blocks of `span`; `prompts` `[blocks, batch, prefix, hidden]`.

        Raises MissingBlocks where blocks have no server for as long as `patience` lasts, and another RemoteError where
        servers are there but fail each time.
        """
        if not hidden.shape[0] or not hidden.shape[1]:
            return hidden, ()
        parts = _rows(hidden.shape)
        done = await asyncio.gather(*(self._forward(hidden[rows], span, _of(prompts, rows)) for rows in parts))
        return torch.cat([output for output, _ in done]), tuple(passed for _, passed in done)

    async def backward(
        self, trace: Trace, gradient: torch.Tensor, span: Span, prompts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Gradients of the input and of the prompts of the forward pass that left `trace`, from that of its output."""
        parts = _rows(gradient.shape)
        done = await asyncio.gather(
            *(
                self._backward(passed, gradient[rows], span, _of(prompts, rows))
                for passed, rows in zip(trace, parts, strict=True)
            )
        )
        of_prompts = [prompt for _, prompt in done if prompt is not None]
        return torch.cat([of_input for of_input, _ in done]), torch.cat(of_prompts, dim=1) if of_prompts else None

    async def _forward(
        self, hidden: torch.Tensor, span: Span, prompts: torch.Tensor | None, tries: _Tries | None = None
    ) -> tuple[torch.Tensor, tuple[Passed, ...]]:
        tries = tries or _Tries(self.patience, self.router)
        passed: list[Passed] = []
        at = span.start
        while at < span.end:
            try:
                for hop in await self.router.find(Wanted(Span(at, span.end))):
                    with tries.on(hop):
                        within = _within(prompts, span, hop.span)
                        output = await calls.forward(self.p2p, self.prefix, hop, hidden, within, self.limits)
                    passed.append(Passed(hop, hidden))
                    hidden, at = output, hop.span.end
            except RemoteError as error:
                await tries.again_after(error)
        return hidden, tuple(passed)

    async def _backward(
        self, passed: tuple[Passed, ...], gradient: torch.Tensor, span: Span, prompts: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        tries = _Tries(self.patience, self.router)
        left = list(passed)
        of_prompts: dict[int, torch.Tensor] = {}
        while left:
            here = left.pop()
            hop, within = here.hop, _within(prompts, span, here.hop.span)
            try:
                with tries.on(hop):
                    gradient, of_these = await calls.backward(
                        self.p2p, self.prefix, hop, here.hidden, gradient, within, self.limits
                    )
            except RemoteError as error:
                await tries.again_after(error)
                # Whoever takes over computes forward again, which tells what goes into each of them.
                _, instead = await self._forward(here.hidden, hop.span, within, tries)
                left.extend(instead)
            else:
                if of_these is not None:
                    of_prompts.update(zip(hop.span, of_these, strict=True))
        return gradient, torch.stack([of_prompts[block] for block in span]) if of_prompts else None


class _Tries:
    """How often servers may still fail in one pass."""

    def __init__(self, patience: Patience, router: Router) -> None:
        self._patience = patience
        self._router = router
        self._attempt = 0

    @contextmanager
    def on(self, hop: Hop) -> Iterator[None]:
        """Tells the router what came of a call."""
        try:
            yield
        except RemoteError as error:
            log.warning("looking for another server for %s: %s failed: %s", hop.span.in_words(), hop.peer_id, error)
            self._router.failed(hop.peer_id)
            raise
        self._router.worked(hop.peer_id)

    async def again_after(self, error: RemoteError) -> None:
        """Waits for a while, or raises `error` where it was tried often enough."""
        if self._attempt >= self._patience.attempts:
            raise error
        # A first failure has somebody else to turn to, mostly.
        pause_s = self._patience.pause_s(self._attempt - 1) if self._attempt else 0.0
        self._attempt += 1
        await asyncio.sleep(pause_s)
        if isinstance(error, MissingBlocks):
            # With nobody else left, a server that failed may be asked again: it may have come back.
            self._router.forgive()


def _rows(shape: torch.Size) -> list[slice]:
    """Parts of a batch that one request may hold each."""
    batch, tokens, *_ = shape
    if tokens > MAX_TOKENS_PER_STEP:
        raise LocalError(f"a pass without a session holds up to {MAX_TOKENS_PER_STEP:,} tokens in a row, not {tokens:,}")
    at_once = max(1, MAX_TOKENS_PER_STEP // tokens)
    return [slice(start, min(start + at_once, batch)) for start in range(0, batch, at_once)]


def _of(prompts: torch.Tensor | None, rows: slice) -> torch.Tensor | None:
    return None if prompts is None else prompts[:, rows]


def _within(prompts: torch.Tensor | None, span: Span, part: Span) -> torch.Tensor | None:
    """The prompts of these blocks of the span."""
    return None if prompts is None else prompts[part.start - span.start : part.end - span.start]
