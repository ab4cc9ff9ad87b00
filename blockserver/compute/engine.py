"""The engine of one span: forward, backward, and steps of sessions with a cache. This is its side on the event loop.

Requests become jobs of the one compute thread (`worker`), which does steps of many sessions in one pass. A session holds a
reservation of the cache's budget; one that is idle while others wait for room is ended. Knows tensors and positions, not
messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch

from blockserver.compute.admission import CacheBudget, Reservation
from blockserver.compute.cache import SessionCache
from blockserver.compute.passes import Backward, Call, Chunks, Forward
from blockserver.compute.scheduler import Busy, Job, JobQueue, Kind, Work
from blockserver.compute.worker import EngineStopped, OutOfMemory, Spent, Step, Worker
from blockserver.model.blocks import SpanModule
from blockserver.model.facts import ModelFacts
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span

__all__ = ["Busy", "Engine", "EngineStopped", "Load", "OutOfMemory", "Session", "SessionEvicted", "Spent"]

T = TypeVar("T")

KEYS_AND_VALUES = 2
"""What Petals' `cache_tokens_left` counts for each token of each block."""

MOST_SESSIONS = 512
"""Open at once: one that reserves no tokens takes none of the cache, but still a stream and a place in the queues."""

NEVER_STEPPED_S = 30.0
"""A session that opened and never stepped may be ended after so long, when others wait for its cache."""

IDLE_S = 120.0
"""One that did step: a person may be typing, but then the client can replay the conversation elsewhere."""


class SessionEvicted(RemoteError):
    """The session was idle and others needed its cache. Its client may open another and replay."""


@dataclass(slots=True, eq=False)
class Session:
    """One client's cache on a part of the span. `position` tokens are in it. `ended` tells a stream that waits for its
    client that the engine has ended the session."""

    blocks: SpanModule
    batch: int
    cache: SessionCache
    reservation: Reservation
    adapter: str | None
    last_used: float
    ended: asyncio.Future[str]
    steps: int = 0
    busy: bool = False

    @property
    def position(self) -> int:
        return self.cache.position

    @property
    def reserved(self) -> int:
        return self.reservation.amount

    def idle_left_s(self, now: float) -> float:
        """Until it may be ended in favour of others."""
        return (IDLE_S if self.steps else NEVER_STEPPED_S) - (now - self.last_used)


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the engine is, at one instant."""

    sessions: int
    waiting_for_cache: int
    waiting: dict[str, int]
    """Requests of each kind that wait for the compute thread."""
    cache_bytes: int
    cache_bytes_left: int
    evicted: int


@dataclass
class Engine:
    """The cache's budget: `cache_bytes`, or what `cache_tokens` tokens take in each block of the span. The sum of batch x
    max_length x blocks over all sessions may not exceed it, and the memory taken never does."""

    module: SpanModule
    cache_tokens: int
    cache_bytes: int | None = None
    spent: Spent = field(default_factory=Spent)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._token_bytes = self.module.facts.cache_bytes_per_token(self.dtype)
        whole = self.cache_tokens * len(self.span) * self._token_bytes
        self._budget = CacheBudget(self.cache_bytes if self.cache_bytes is not None else whole, self._token_bytes, self._evict)
        self._sessions: set[Session] = set()
        self._evicted = 0
        self._stopped = False
        self._chunks = Chunks(crowded=lambda: len(self._sessions) > 1)
        self._jobs = JobQueue(lambda: self._chunks.tokens_per_s)
        self._worker = Worker(self.module, self._jobs, self.spent, self._chunks, self._room_beside)
        self._worker.start()

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
    def adapters(self) -> tuple[str, ...]:
        return self.module.adapters

    @property
    def cache_tokens_left(self) -> int:
        """In Petals' unit: keys and values of all blocks."""
        return KEYS_AND_VALUES * (self._budget.left // self._token_bytes)

    @property
    def memory_bytes(self) -> int:
        """What keys and values take at this moment. For tests and metrics; the compute thread may be changing it."""
        return self._worker.memory_bytes + sum(session.cache.bytes for session in self._sessions)

    def load(self) -> Load:
        return Load(
            sessions=len(self._sessions),
            waiting_for_cache=self._budget.waiting,
            waiting={kind.name.lower(): count for kind, count in self._jobs.waiting().items()},
            cache_bytes=self._budget.capacity,
            cache_bytes_left=self._budget.left,
            evicted=self._evicted,
        )

    def stop(self) -> None:
        """Jobs that have not begun end with EngineStopped. Returns at once; a running pass ends by itself."""
        if not self._stopped:
            self._stopped = True
            self._jobs.close()

    async def forward(self, span: Span, given: BlockInput, adapter: str | None = None) -> torch.Tensor:
        work = Forward(self.module.part(span), given, self._chunks, self._known(adapter), len(self.span))
        return cast(torch.Tensor, await self._submit(Kind.FORWARD, _tokens(given), work))

    async def backward(
        self, span: Span, given: BlockInput, gradient: torch.Tensor, adapter: str | None = None
    ) -> list[torch.Tensor]:
        """The gradient of the hidden states and, where prompts were given, that of the prompts."""
        work = Backward(self.module.part(span), given, gradient, self._known(adapter))
        return cast(list[torch.Tensor], await self._submit(Kind.BACKWARD, _tokens(given), work))

    async def open(
        self, span: Span, batch: int, max_length: int, alloc_timeout_s: float = 0.0, adapter: str | None = None
    ) -> Session:
        """Reserves cache for `max_length` tokens in each of `batch` rows. `close` it in a finally clause."""
        self._refuse_when_stopped()
        if len(self._sessions) >= MOST_SESSIONS:
            raise Busy(f"busy: {MOST_SESSIONS} sessions are open; try again in about {NEVER_STEPPED_S:.0f} s")
        blocks = self.module.part(span)
        adapter = self._known(adapter)
        reservation = await self._budget.reserve(batch * max_length * len(span) * self._token_bytes, alloc_timeout_s)
        session = Session(
            blocks=blocks,
            batch=batch,
            cache=SessionCache(len(self.span), max_length),
            reservation=reservation,
            adapter=adapter,
            last_used=self.clock(),
            ended=asyncio.get_running_loop().create_future(),
        )
        self._sessions.add(session)
        return session

    async def step(self, session: Session, given: BlockInput, position: int | None = None) -> torch.Tensor:
        """The outputs of the new tokens, which begin at `position` (what came after it is forgotten) or at the end.

        One step of a session at a time.
        """
        if session.ended.done():
            raise SessionEvicted(session.ended.result())
        tokens = given.hidden.shape[1]
        session.busy = True
        try:
            kind = Kind.STEP if tokens <= 1 else Kind.PREFILL
            return cast(torch.Tensor, await self._submit(kind, _tokens(given), Step(session, given, position)))
        finally:
            session.busy = False
            session.last_used = self.clock()
            session.steps += bool(tokens)

    def close(self, session: Session) -> None:
        """Its part of the budget is free at once, its memory when the compute thread comes to it."""
        session.reservation.release()
        self._sessions.discard(session)
        self._jobs.put_chore(lambda: self._worker.forget(session))

    async def run(self, work: Callable[[SpanModule], T]) -> T:
        """Anything else on the compute thread, such as a measurement."""
        return cast(T, await self._submit(Kind.FORWARD, 0, Call(lambda: work(self.module))))

    # -------------------------------------------------------------------------------------------------------- within

    async def _submit(self, kind: Kind, tokens: int, work: Work) -> object:
        self._refuse_when_stopped()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[object] = loop.create_future()
        self._jobs.put(Job(kind, tokens, work, result, loop))
        return await result

    def _refuse_when_stopped(self) -> None:
        if self._stopped:
            raise EngineStopped(f"blocks {self.span} are no longer served here")

    def _known(self, adapter: str | None) -> str | None:
        if adapter and adapter not in self.adapters:
            raise RemoteError(f"this server has no adapter {adapter[:80]!r}")
        return adapter or None

    def _room_beside(self, reserved: int) -> int:
        """Bytes left to sessions with these reservations when all others take what is theirs."""
        return self._budget.capacity - (self._budget.held - reserved)

    def _evict(self) -> float | None:
        """Ends the session that is idle beyond its limit for longest; 0.0 then. Otherwise when to look again."""
        now = self.clock()
        idle = [session for session in self._sessions if not session.busy and session.reserved]
        if not idle:
            return None
        longest = min(idle, key=lambda session: session.idle_left_s(now))
        left_s = longest.idle_left_s(now)
        if left_s > 0.0:
            return left_s
        longest.ended.set_result(f"the session was idle for {now - longest.last_used:.0f} s while others waited for its cache")
        longest.reservation.release()
        self._evicted += 1
        return 0.0


def _tokens(given: BlockInput) -> int:
    return given.hidden.shape[0] * given.hidden.shape[1]
