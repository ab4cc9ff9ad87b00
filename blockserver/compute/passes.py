"""Single passes over the blocks, as work for the compute thread: a prefill, a forward, a backward, anything else.

Long ones are done in chunks, so that steps of other sessions get their turn in between. Knows tensors and one session's
cache; not threads, queues or other sessions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from blockserver.compute.cache import SessionCache
from blockserver.model.blocks import SpanModule
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError

CHUNK_S = 0.25
"""How long a chunk may keep the others waiting: a few steps' time on a CPU."""

SMALLEST_CHUNK = 32
LARGEST_CHUNK = 2_048
"""Tokens. Below, reading the weights costs more than computing; above, nothing is gained."""

UNHURRIED = 8
"""Times the usual chunk, where nobody else has a session."""


@dataclass(slots=True)
class Chunks:
    """How many tokens a chunk has, from the speed of those before."""

    tokens_per_s: float = SMALLEST_CHUNK / CHUNK_S
    crowded: Callable[[], bool] = lambda: True

    def size(self, rows: int) -> int:
        """Tokens of each row: a power of two, so that kernels meet few shapes."""
        tokens = int(self.tokens_per_s * CHUNK_S) * (1 if self.crowded() else UNHURRIED)
        tokens = min(max(tokens, SMALLEST_CHUNK), LARGEST_CHUNK) // rows
        return 1 << max(tokens, 1).bit_length() - 1

    def saw(self, tokens: int, seconds: float) -> None:
        if tokens >= SMALLEST_CHUNK:
            self.tokens_per_s += 0.5 * (tokens / max(seconds, 1e-6) - self.tokens_per_s)


@dataclass(slots=True)
class Chunked:
    """`given` through the blocks with a cache, chunk by chunk. A failure leaves the cache at the position it had."""

    blocks: SpanModule
    cache: SessionCache
    given: BlockInput
    chunks: Chunks
    adapter: str | None = None
    outputs: list[torch.Tensor] = field(default_factory=list)
    done: int = 0

    def advance(self) -> list[object] | None:
        hidden = self.given.hidden
        end = min(self.done + self.chunks.size(hidden.shape[0]), hidden.shape[1])
        started = time.perf_counter()
        with torch.inference_mode():
            part = hidden[:, self.done : end].to(self.blocks.device)
            output = finite(self.blocks.forward(part, self.cache, self._prompts(end), self.adapter))
        self.chunks.saw(part.shape[0] * part.shape[1], time.perf_counter() - started)
        self.cache.advance(end - self.done)
        self.outputs.append(output)
        self.done = end
        if end < hidden.shape[1]:
            return None
        return [self.outputs[0] if len(self.outputs) == 1 else torch.cat(self.outputs, dim=1)]

    def undo(self) -> None:
        self.cache.position -= self.done
        self.done = 0
        self.outputs.clear()

    def _prompts(self, end: int) -> torch.Tensor | None:
        """Those of this chunk's positions: prompts belong to the first positions of the whole."""
        prompts = self.given.prompts
        if prompts is None or prompts.shape[2] <= self.done:
            return None
        return prompts[:, :, self.done : end].to(self.blocks.device)


@dataclass(slots=True)
class Forward:
    """Without a session. A long one takes a cache of its own for as long as it runs, and goes chunk by chunk."""

    blocks: SpanModule
    given: BlockInput
    chunks: Chunks
    adapter: str | None
    blocks_held: int
    chunked: Chunked | None = None

    def advance(self) -> list[object] | None:
        hidden, prompts = self.given.hidden, self.given.prompts
        if self.chunked is None and hidden.shape[1] > self.chunks.size(hidden.shape[0]):
            cache = SessionCache(self.blocks_held, hidden.shape[1])
            self.chunked = Chunked(self.blocks, cache, self.given, self.chunks, self.adapter)
        if self.chunked is not None:
            return self.chunked.advance()
        if not hidden.shape[1]:
            return [hidden]
        device = self.blocks.device
        with torch.inference_mode():
            moved = None if prompts is None else prompts.to(device)
            return [finite(self.blocks.forward(hidden.to(device), None, moved, self.adapter))]


@dataclass(slots=True)
class Backward:
    """The gradient of the hidden states and, where prompts were given, that of the prompts."""

    blocks: SpanModule
    given: BlockInput
    gradient: torch.Tensor
    adapter: str | None

    def advance(self) -> list[object] | None:
        device = self.blocks.device
        leaves = [self.given.hidden.detach().to(device).requires_grad_()]
        if self.given.prompts is not None:
            leaves.append(self.given.prompts.detach().to(device).requires_grad_())
        with torch.enable_grad():
            output = self.blocks.forward(leaves[0], None, leaves[1] if len(leaves) > 1 else None, self.adapter)
            gradients = torch.autograd.grad(output, leaves, self.gradient.to(device))
        return [[finite(one) for one in gradients]]


@dataclass(slots=True)
class Call:
    """Anything else that must run on the compute thread, such as a measurement."""

    call: Callable[[], object]

    def advance(self) -> list[object] | None:
        return [self.call()]


NOT_FINITE = "the result holds values that are not finite, so it is no answer"


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """A sum tells: it is finite exactly where all terms are, but for an overflow, which is no answer either."""
    if not bool(tensor.sum(dtype=torch.float32).isfinite()):
        raise RemoteError(NOT_FINITE)
    return tensor
