"""The compute thread: takes jobs in the scheduler's order, batches steps, answers.

Whatever a pass raises fails the requests that it was for, and only those: when a pass over several sessions fails, each of
them is tried alone. Knows sessions' caches and where they lie; not requests, nor who may have how much memory: `room` says
that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from blockserver.compute.batching import MOST_ROWS, Together, find_together
from blockserver.compute.cache import SessionCache
from blockserver.compute.passes import NOT_FINITE, Chunked, Chunks
from blockserver.compute.scheduler import Company, Job, JobQueue, Kind
from blockserver.compute.slots import Slots, length_class
from blockserver.model.blocks import SpanModule
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span

log = logging.getLogger(__name__)


class EngineStopped(RemoteError):
    """The server gave up these blocks; another one, or this one later, may answer."""


class OutOfMemory(RemoteError):
    """Too much for this server at the moment; less, or later, may do."""


class OpenSession(Protocol):
    """What the thread needs of a session. `reserved` bytes are its share of the budget."""

    blocks: SpanModule
    batch: int
    cache: SessionCache
    adapter: str | None

    @property
    def reserved(self) -> int: ...


@dataclass(slots=True)
class Spent:
    """What the compute thread has done since the start, for throughput figures."""

    seconds: float = 0.0
    passes: int = 0
    tokens: int = 0
    steps_together: int = 0
    """Steps of sessions that shared a pass with others."""


@dataclass(slots=True, eq=False)
class Step:
    """New tokens of a session, which begin at `position` or at its end."""

    session: OpenSession
    given: BlockInput
    position: int | None
    chunked: Chunked | None = None

    def advance(self) -> list[object] | None:
        assert self.chunked is not None
        return self.chunked.advance()


class Worker:
    """`room()` is how many bytes sessions outside the shared slots leave over."""

    def __init__(self, module: SpanModule, queue: JobQueue, spent: Spent, chunks: Chunks, room: Callable[[int], int]) -> None:
        self.module = module
        self._queue = queue
        self._spent = spent
        self._chunks = chunks
        self._room = room
        self._together: Together | None = None
        self._slots: dict[tuple[Span, int], Slots] = {}
        self._where: dict[SessionCache, tuple[OpenSession, Slots]] = {}
        self._company = Company()
        self._recent: list[set[SessionCache]] = [set(), set()]
        self._taken: list[Job] = []
        self._answers: list[tuple[Job, object]] = []
        self._thread = threading.Thread(target=self._work, name=f"blocks {module.span}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def memory_bytes(self) -> int:
        """Of the shared rows."""
        return sum(slots.bytes for slots in list(self._slots.values()))

    @torch.inference_mode()
    def forget(self, session: OpenSession) -> None:
        """A chore: the session has ended."""
        if session.cache in self._where:
            _, slots = self._where.pop(session.cache)
            slots.drop(session.cache)
        for recent in self._recent:
            recent.discard(session.cache)
        session.cache.free()

    # ------------------------------------------------------------------------------------------------------ the loop

    def _work(self) -> None:
        self._try_together()
        while (job := self._queue.take()) is not None:
            started = time.perf_counter()
            self._taken = [job]
            try:
                if isinstance(job.work, Step):
                    self._steps(job)
                elif job.wanted:
                    self._turn(job)
            # Door of the thread: without it nobody would be answered any more, and the server would still look alive.
            except Exception as error:
                log.exception("a fault of the compute thread itself")
                for one in self._taken:
                    self._answer(one, _blamed(error))
            self._spent.seconds += time.perf_counter() - started
            self._deliver()
        for left in self._queue.drain():
            self._answer(left, EngineStopped(f"blocks {self.module.span} are no longer served here"))
        self._deliver()

    def _try_together(self) -> None:
        try:
            self._together = find_together(self.module)
        # Door: families' configs say what they like; one that cannot be read is served one session after another.
        except Exception:
            log.exception("steps of several sessions are computed one by one")

    def _turn(self, job: Job) -> None:
        """One turn's share of the work."""
        self._spent.passes += 1
        try:
            done = job.work.advance()
        # Door: whatever a pass raises (out of memory above all) fails its request, not the thread.
        except Exception as error:
            self._fail(job, error)
            return
        if done is None:
            self._queue.put_back(job)
        else:
            self._spent.tokens += job.tokens
            self._answer(job, done[0])

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(job.work, Step) and job.work.chunked is not None:
            job.work.chunked.undo()
        self._answer(job, _blamed(error))

    # ------------------------------------------------------------------------------------------------- sessions' steps

    @torch.inference_mode()
    def _steps(self, job: Job) -> None:
        key = self._key(job)
        jobs = [job]
        if key is not None:
            self._wait_for_company(job)
            jobs += self._queue.take_alike(key, self._key, MOST_ROWS - job.tokens)
            self._taken = jobs
            self._recent = [self._recent[1], {_step(one).session.cache for one in jobs}]
        ready = [one for one in jobs if self._prepare(one)]
        if key is None or (len(ready) == 1 and _step(ready[0]).session.cache not in self._where):
            for one in ready:
                self._alone(one)
        elif ready:
            self._in_one_pass(ready, key[1])

    def _wait_for_company(self, job: Job) -> None:
        """For the sessions of the last two passes, which will soon ask again."""
        recent = set().union(*self._recent) - {_step(job).session.cache}
        expected = len(recent) - self._queue.waiting()[Kind.STEP]
        wait_s = self._company.wait_s(max(expected, 0))
        if wait_s:
            waited = time.perf_counter()
            self._company.came(self._queue.wait_for_steps(len(recent), wait_s), expected)
            self._spent.seconds -= time.perf_counter() - waited

    def _key(self, job: Job) -> tuple[Span, int, str | None, bool] | None:
        """Steps of the same key can be one pass; None for a step that goes alone."""
        step = _step(job)
        session, at = step.session, step.session.cache.position if step.position is None else step.position
        plain = step.given.hidden.shape[:2] == (session.batch, 1) and step.given.prompts is None
        longest = length_class(at + 1)
        if self._together is None or not plain or not 0 < at <= session.cache.position or longest is None:
            return None
        return session.blocks.span, longest, session.adapter, self._together.side(at)

    def _prepare(self, job: Job) -> bool:
        """Position and rows as the step wants them. False where it is answered already, or goes on where it stopped."""
        step = _step(job)
        if not job.wanted:
            if step.chunked is not None:
                step.chunked.undo()
            return False
        if step.chunked is not None:
            self._turn(job)
            return False
        try:
            self._set_up(step)
        # Door: as for a pass.
        except Exception as error:
            self._answer(job, _blamed(error))
            return False
        if not step.given.hidden.shape[1]:
            self._answer(job, step.given.hidden)
            return False
        return True

    def _set_up(self, step: Step) -> None:
        session, cache, hidden = step.session, step.session.cache, step.given.hidden
        if hidden.shape[0] != session.batch:
            raise RemoteError(f"the session was opened for a batch of {session.batch}, not {hidden.shape[0]}")
        if step.position is not None:
            cache.rollback(step.position)
        if cache.position + hidden.shape[1] > cache.max_length:
            raise RemoteError(
                f"{cache.position} + {hidden.shape[1]} tokens are more than the {cache.max_length} reserved for the session"
            )
        if step.given.rows is not None:
            if cache in self._where:
                self._where[cache][1].reorder(cache, step.given.rows)
            else:
                cache.reorder(step.given.rows)

    def _alone(self, job: Job) -> None:
        step = _step(job)
        session = step.session
        try:
            self._move_out(session.cache)
        # Door: as for a pass; the session stays where it is.
        except Exception as error:
            self._fail(job, error)
            return
        step.chunked = Chunked(session.blocks, session.cache, step.given, self._chunks, session.adapter)
        self._turn(job)

    def _in_one_pass(self, jobs: Sequence[Job], longest: int) -> None:
        started = time.perf_counter()
        steps = [_step(job) for job in jobs]
        blocks = steps[0].session.blocks
        slots = self._slots.setdefault((blocks.span, longest), Slots(longest))
        try:
            seated = self._seat(slots, [step.session for step in steps])
            if seated:
                outputs = self._pass(slots, steps, blocks)
        # Door: the pass is for all of them, the fault perhaps of one. Each has its own chance.
        except Exception as error:
            log.debug("a pass over %d sessions failed, each is tried alone: %s", len(jobs), error)
            seated = False
        if not seated:
            for job in jobs:
                self._alone(job)
            return
        self._company.took(time.perf_counter() - started)
        self._spent.passes += 1
        self._spent.steps_together += len(jobs) if len(jobs) > 1 else 0
        for job, step, output in zip(jobs, steps, outputs, strict=True):
            if isinstance(output, RemoteError):
                slots.forget_after(step.session.cache)
            else:
                step.session.cache.advance(1)
                self._spent.tokens += job.tokens
            self._answer(job, output)

    def _pass(self, slots: Slots, steps: Sequence[Step], blocks: SpanModule) -> list[torch.Tensor | RemoteError]:
        """One token of each session. For each step its output, or what is wrong with it."""
        assert self._together is not None
        places = torch.tensor(slots.gather([step.session.cache for step in steps]), device=blocks.device)
        given = torch.cat([step.given.hidden for step in steps]).to(blocks.device)
        hidden = torch.empty_like(given)
        hidden[places] = given
        output = self._together.step(blocks, hidden, slots.window, steps[0].session.adapter)[places]
        right = output.sum(dim=(1, 2), dtype=torch.float32).isfinite().tolist()
        answers: list[torch.Tensor | RemoteError] = []
        start = 0
        for step in steps:
            rows = slice(start, start + step.session.batch)
            answers.append(output[rows] if all(right[rows]) else RemoteError(NOT_FINITE))
            start = rows.stop
        return answers

    # ------------------------------------------------------------------------------------------------ where caches lie

    def _seat(self, slots: Slots, sessions: Sequence[OpenSession]) -> bool:
        """All of them in these slots, if memory allows it."""
        for session in sessions:
            if session.cache not in slots:
                self._move_out(session.cache)
        joining = [session for session in sessions if session.cache not in slots]
        length = 1 + max(session.cache.position for session in sessions)
        members = {id(session): session for session, _ in self._where.values()}
        members.update({id(session): session for session in joining})
        room = self._room(sum(session.reserved for session in members.values()))
        others = sum(one.bytes for one in self._slots.values() if one is not slots)
        if others + slots.bytes_with([session.cache for session in joining], length) > room:
            for cache in list(self._where):
                self._move_out(cache)
            return False
        slots.make_room(length)
        for session in joining:
            slots.join(session.cache)
            self._where[session.cache] = (session, slots)
        return True

    def _move_out(self, cache: SessionCache) -> None:
        if cache in self._where:
            self._where[cache][1].leave(cache)
            del self._where[cache]

    # --------------------------------------------------------------------------------------------------------- answers

    def _answer(self, job: Job, result: object) -> None:
        self._answers.append((job, result))

    def _deliver(self) -> None:
        """All of this turn's answers at once: waking the event loop costs more than an answer."""
        answers, self._answers = self._answers, []
        for loop in dict.fromkeys(job.loop for job, _ in answers):
            own = [(job, result) for job, result in answers if job.loop is loop]
            try:
                loop.call_soon_threadsafe(_set_results, own)
            except RuntimeError:
                # The loop is closed: the process ends, and nobody waits for these answers.
                continue


def _set_results(answers: Sequence[tuple[Job, object]]) -> None:
    for job, result in answers:
        if job.result.done():  # its client is gone
            continue
        if isinstance(result, Exception):
            job.result.set_exception(result)
        else:
            job.result.set_result(result)


def _step(job: Job) -> Step:
    assert isinstance(job.work, Step)
    return job.work


def _blamed(error: Exception) -> RemoteError:
    if isinstance(error, RemoteError):
        return error
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "alloc" in text:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return OutOfMemory(f"out of memory in this pass ({type(error).__name__}: {text[:200]}); less, or later, may do")
    return RemoteError(f"the blocks failed on this input ({type(error).__name__}: {text[:200]})")
