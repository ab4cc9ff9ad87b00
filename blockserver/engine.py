"""One compute thread for one span: forward, backward, and steps of sessions with a cache.

The event loop hands it jobs and awaits their results; the thread takes them one at a time, in order. Batching the steps of
several sessions means taking several jobs at once from the same queue. Knows tensors and positions, not messages.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from blockserver.blocks import SpanModule
from blockserver.cache import CacheBudget, Reservation, SessionCache
from blockserver.facts import ModelFacts
from blockserver.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span

T = TypeVar("T")

KEYS_AND_VALUES = 2
"""What Petals' `cache_tokens_left` counts for each token of each block."""


class EngineStopped(RemoteError):
    """The server gave up these blocks; another one, or this one later, may answer."""


@dataclass(slots=True)
class Session:
    """One client's cache on a part of the span. `position` tokens are in it."""

    blocks: SpanModule
    batch: int
    cache: SessionCache
    reservation: Reservation

    @property
    def position(self) -> int:
        return self.cache.position


@dataclass(slots=True)
class Spent:
    """What the compute thread has done since the start, for throughput figures."""

    seconds: float = 0.0
    passes: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _Job:
    run: Callable[[], object]
    result: asyncio.Future[object]
    loop: asyncio.AbstractEventLoop


@dataclass
class Engine:
    """`cache_tokens` is the budget in tokens for each block of the span: sessions x batch x max_length may not exceed it."""

    module: SpanModule
    cache_tokens: int
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self._budget = CacheBudget(self.cache_tokens * len(self.span))
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name=f"blocks {self.span}", daemon=True)
        self._thread.start()

    @property
    def span(self) -> Span:
        return self.module.span

    @property
    def facts(self) -> ModelFacts:
        return self.module.facts

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype

    @property
    def cache_tokens_left(self) -> int:
        """In Petals' unit: keys and values of all blocks."""
        return KEYS_AND_VALUES * self._budget.left

    def stop(self) -> None:
        """Jobs that have not begun end with EngineStopped. Returns at once; a running pass ends by itself."""
        if not self._stopped:
            self._stopped = True
            self._jobs.put(None)

    async def forward(self, span: Span, given: BlockInput) -> torch.Tensor:
        return await self._submit(lambda: self._forward(span, given))

    async def backward(self, span: Span, given: BlockInput, gradient: torch.Tensor) -> list[torch.Tensor]:
        """The gradient of the hidden states and, where prompts were given, that of the prompts."""
        return await self._submit(lambda: self._backward(span, given, gradient))

    async def open(self, span: Span, batch: int, max_length: int, alloc_timeout_s: float = 0.0) -> Session:
        """Reserves cache for `max_length` tokens in each of `batch` rows. `close` it in a finally clause."""
        self._refuse_when_stopped()
        reservation = await self._budget.reserve(batch * max_length * len(span), alloc_timeout_s)
        return Session(self.module.part(span), batch, SessionCache(len(self.span), max_length), reservation)

    async def step(self, session: Session, given: BlockInput, position: int | None = None) -> torch.Tensor:
        """The outputs of the new tokens, which begin at `position` (what came after it is forgotten) or at the end."""
        return await self._submit(lambda: self._step(session, given, position))

    def close(self, session: Session) -> None:
        session.reservation.release()

    async def run(self, work: Callable[[SpanModule], T]) -> T:
        """Anything else on the compute thread, such as a measurement."""
        return await self._submit(lambda: work(self.module))

    # ------------------------------------------------------------------------------------------- on the event loop

    async def _submit(self, run: Callable[[], T]) -> T:
        self._refuse_when_stopped()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(run, result, loop))  # type: ignore[arg-type]
        return await result

    def _refuse_when_stopped(self) -> None:
        if self._stopped:
            raise EngineStopped(f"blocks {self.span} are no longer served here")

    # --------------------------------------------------------------------------------------- on the compute thread

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                break
            self._do(job)
        while not self._jobs.empty():
            left = self._jobs.get()
            if left is not None:
                _answer(left, EngineStopped(f"blocks {self.span} are no longer served here"))

    def _do(self, job: _Job) -> None:
        if self._stopped:
            _answer(job, EngineStopped(f"blocks {self.span} are no longer served here"))
            return
        started = time.perf_counter()
        try:
            result: object = job.run()
        # Door: whatever a pass raises (out of memory above all) fails its request, not the thread.
        except Exception as error:
            result = error if isinstance(error, RemoteError) else _failure(error)
        self.spent.seconds += time.perf_counter() - started
        self.spent.passes += 1
        _answer(job, result)

    @torch.inference_mode()
    def _forward(self, span: Span, given: BlockInput) -> torch.Tensor:
        self.spent.tokens += given.hidden.shape[0] * given.hidden.shape[1]
        if not given.hidden.shape[1]:
            return given.hidden
        return _finite(self.module.part(span).forward(given.hidden.to(self.module.device), None, given.prompts))

    def _backward(self, span: Span, given: BlockInput, gradient: torch.Tensor) -> list[torch.Tensor]:
        leaves = [given.hidden.detach().requires_grad_()]
        if given.prompts is not None:
            leaves.append(given.prompts.detach().requires_grad_())
        with torch.enable_grad():
            output = self.module.part(span).forward(leaves[0], None, leaves[1] if len(leaves) > 1 else None)
            gradients = torch.autograd.grad(output, leaves, gradient)
        return [_finite(one) for one in gradients]

    @torch.inference_mode()
    def _step(self, session: Session, given: BlockInput, position: int | None) -> torch.Tensor:
        cache, hidden = session.cache, given.hidden
        if hidden.shape[0] != session.batch:
            raise RemoteError(f"the session was opened for a batch of {session.batch}, not {hidden.shape[0]}")
        if position is not None:
            cache.rollback(position)
        if cache.position + hidden.shape[1] > cache.max_length:
            raise RemoteError(
                f"{cache.position} + {hidden.shape[1]} tokens are more than the {cache.max_length} reserved for the session"
            )
        if given.rows is not None:
            cache.reorder(given.rows)
        if not hidden.shape[1]:
            return hidden
        output = _finite(session.blocks.forward(hidden.to(self.module.device), cache, given.prompts))
        cache.advance(hidden.shape[1])
        self.spent.tokens += hidden.shape[0] * hidden.shape[1]
        return output


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """A sum tells: it is finite exactly where all terms are, but for an overflow, which is no answer either."""
    if not bool(tensor.sum(dtype=torch.float32).isfinite()):
        raise RemoteError("the result holds values that are not finite, so it is no answer")
    return tensor


def _failure(error: Exception) -> RemoteError:
    return RemoteError(f"the blocks failed on this input ({type(error).__name__}: {str(error)[:200]})")


def _answer(job: _Job, result: object) -> None:
    def deliver() -> None:
        if job.result.done():  # its client is gone
            return
        if isinstance(result, Exception):
            job.result.set_exception(result)
        else:
            job.result.set_result(result)

    try:
        job.loop.call_soon_threadsafe(deliver)
    except RuntimeError:
        # The loop is closed: the process ends, and nobody waits for this answer.
        return
