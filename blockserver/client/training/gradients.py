"""autograd through blocks that are elsewhere: a pass over the swarm as one differentiable function.

The blocks' weights stay as they are; gradients are those of the hidden states and of deep prompts. Knows autograd; retries,
routes and messages are `passes`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar, cast

import torch
from torch.autograd.function import once_differentiable

from blockserver.client.passes.chain import Chain
from swarm.wire.spans import Span

T = TypeVar("T")


class Runs(Protocol):
    """What waits for work on the event loop that the chain's peer lives on."""

    @property
    def closed(self) -> bool: ...

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...


def through_swarm(
    runs: Runs, chain: Chain, span: Span, hidden: torch.Tensor, prompts: torch.Tensor | None = None
) -> torch.Tensor:
    """`hidden` `[batch, tokens, hidden]` through `span`, with deep `prompts` `[blocks, batch, prefix, hidden]`; differentiable.

    Raises MissingBlocks or another RemoteError, in the backward pass too, where the swarm cannot serve.
    """
    return cast(torch.Tensor, cast(Any, _ThroughSwarm).apply(runs, chain, span, hidden, prompts))


class _ThroughSwarm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, runs: Runs, chain: Chain, span: Span, hidden: torch.Tensor, prompts: torch.Tensor | None
    ) -> torch.Tensor:
        given = None if prompts is None else prompts.detach().to(hidden.dtype)
        output, trace = runs.run(chain.forward(hidden.detach(), span, given))
        ctx.pass_made = (runs, chain, span, given, trace)
        ctx.prompts_dtype = None if prompts is None else prompts.dtype
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        runs, chain, span, given, trace = ctx.pass_made
        of_hidden, of_prompts = runs.run(chain.backward(trace, gradient, span, given))
        if of_prompts is not None:
            of_prompts = of_prompts.to(ctx.prompts_dtype)
        return None, None, None, of_hidden, of_prompts
