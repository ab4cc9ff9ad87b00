"""Which work the compute thread does next, and when there is too much of it.

Steps of sessions come before prefills, prefills before forward passes, those before backward passes; but whoever waits gets
a turn after a few of the others, so that nobody waits for ever. Queues are bounded: beyond them a peer is told to come back.
Knows kinds, keys and counts; not tensors, nor how work is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from swarm.errors import RemoteError

PATIENCE = 4
"""Turns that a lower kind lets others go first. With decoding in every other turn, a prefill slows it to 4/5 of the turns."""

MOST_WAITING = 64
"""Requests of a kind. Steps are bounded by sessions beside that: each has one at a time."""

MOST_STEPS_WAITING = 1_024

MOST_TOKENS_WAITING = 65_536
"""Tokens of all waiting work but single steps: eight requests of the largest size, whose tensors wait in memory."""


class Busy(RemoteError):
    """Trying again later helps; the text says when."""


class Kind(IntEnum):
    """In order of priority."""

    STEP = 0
    PREFILL = 1
    FORWARD = 2
    BACKWARD = 3

    @property
    def in_words(self) -> str:
        return ("steps", "prefills", "forward passes", "backward passes")[self]


class Work(Protocol):
    """`advance` does one turn's share. None where more is left to do; the result, in a list, where it is done."""

    def advance(self) -> list[object] | None: ...


@dataclass(slots=True, eq=False)
class Job:
    """`key` is that of other steps which may be computed together with it, asked for when its turn comes."""

    kind: Kind
    tokens: int
    work: Work
    result: asyncio.Future[object]
    loop: asyncio.AbstractEventLoop

    @property
    def wanted(self) -> bool:
        """Its client still waits. A future's state may be read from any thread."""
        return not self.result.done()


COMPANY_SHARE = 0.3
"""How long a step may wait for others, as a share of a pass: two passes take nearly twice the time of one for all."""

LONGEST_WAIT_S = 0.05


@dataclass(slots=True)
class Company:
    """Whether to wait a moment, before a pass, for the sessions that were answered a moment ago.

    Clients nearby send their next token within milliseconds, and one pass for all is cheaper than two for halves. Where
    waiting brought nobody, it is tried again only now and then.
    """

    pass_s: float = 0.0
    worth: float = 1.0
    skipped: int = 0

    def wait_s(self, expected: int) -> float:
        if not expected:
            return 0.0
        if self.worth < 0.1:
            self.skipped += 1
            if self.skipped % 32:
                return 0.0
        return min(COMPANY_SHARE * self.pass_s, LONGEST_WAIT_S)

    def came(self, count: int, expected: int) -> None:
        self.worth += 0.2 * (min(count / expected, 1.0) - self.worth)

    def took(self, seconds: float) -> None:
        self.pass_s += 0.2 * (seconds - self.pass_s) if self.pass_s else seconds


@dataclass(slots=True)
class Turns:
    """Strict priority, but a kind that was passed over `PATIENCE` times is next."""

    passed_over: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))

    def choose(self, waiting: Collection[Kind]) -> Kind:
        impatient = [kind for kind in waiting if self.passed_over[kind] >= PATIENCE]
        # Of several, the one passed over longest; of those, the first in priority.
        chosen = max(impatient, key=lambda kind: (self.passed_over[kind], -kind)) if impatient else min(waiting)
        for kind in Kind:
            self.passed_over[kind] = self.passed_over[kind] + 1 if kind in waiting and kind != chosen else 0
        return chosen


class JobQueue:
    """Filled by the event loop, emptied by the compute thread. `tokens_per_s` is for the "try again" of a refusal."""

    def __init__(self, tokens_per_s: Callable[[], float]) -> None:
        self._tokens_per_s = tokens_per_s
        self._waiting: dict[Kind, deque[Job]] = {kind: deque() for kind in Kind}
        self._chores: deque[Callable[[], None]] = deque()
        self._turns = Turns()
        self._changed = threading.Condition()
        self._closed = False

    def waiting(self) -> dict[Kind, int]:
        return {kind: len(jobs) for kind, jobs in self._waiting.items()}

    def put(self, job: Job) -> None:
        """Raises Busy where too much waits already."""
        with self._changed:
            self._refuse_beyond_limits(job)
            self._waiting[job.kind].append(job)
            self._changed.notify()

    def put_back(self, job: Job) -> None:
        """Work that goes on after the others of its kind had their turn."""
        with self._changed:
            self._waiting[job.kind].append(job)

    def put_chore(self, chore: Callable[[], None]) -> None:
        """A moment's work without an answer, before anything else."""
        with self._changed:
            self._chores.append(chore)
            self._changed.notify()

    def take(self) -> Job | None:
        """Waits for work, does chores meanwhile. None when the queue is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._chores or any(self._waiting.values()))
                if not self._chores:
                    return None if self._closed else self._next()
                chore = self._chores.popleft()
            chore()

    def take_alike(self, key: Hashable, key_of: Callable[[Job], Hashable], most: int) -> list[Job]:
        """Steps that wait and have that key, in order, of at most so many tokens together."""
        with self._changed:
            steps = self._waiting[Kind.STEP]
            alike: list[Job] = []
            for _ in range(len(steps)):
                job = steps.popleft()
                fits = job.tokens <= most and key_of(job) == key
                most -= job.tokens if fits else 0
                (alike if fits else steps).append(job)
        return alike

    def wait_for_steps(self, enough: int, timeout_s: float) -> int:
        """Until so many steps wait, or something else does, or time is up. How many steps came meanwhile."""
        with self._changed:
            steps = self._waiting[Kind.STEP]
            before = len(steps)
            self._changed.wait_for(lambda: len(steps) >= enough or self._closed or self._others_wait(), timeout_s)
            return len(steps) - before

    def _others_wait(self) -> bool:
        return any(jobs for kind, jobs in self._waiting.items() if kind is not Kind.STEP)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def drain(self) -> list[Job]:
        """All that is left after `close`."""
        with self._changed:
            left = [job for jobs in self._waiting.values() for job in jobs]
            for jobs in self._waiting.values():
                jobs.clear()
        return left

    def _next(self) -> Job:
        kind = self._turns.choose([kind for kind, jobs in self._waiting.items() if jobs])
        return self._waiting[kind].popleft()

    def _refuse_beyond_limits(self, job: Job) -> None:
        others = self._waiting[job.kind]
        most = MOST_STEPS_WAITING if job.kind is Kind.STEP else MOST_WAITING
        tokens = sum(one.tokens for kind, jobs in self._waiting.items() if kind is not Kind.STEP for one in jobs)
        crowded = job.kind is not Kind.STEP and tokens > 0 and tokens + job.tokens > MOST_TOKENS_WAITING
        if len(others) >= most or crowded:
            retry_s = max(1.0, tokens / max(self._tokens_per_s(), 1.0))
            raise Busy(
                f"busy: {len(others)} {job.kind.in_words} wait already ({tokens:,} tokens); try again in {retry_s:.0f} s"
            )
