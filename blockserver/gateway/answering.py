"""One answer, from its place in the queue to its last piece, in a task of its own: whoever reads it may leave at any moment,
and the task then ends the session with the servers.

Knows turns, sessions and the clock; what is sent, and in which form, is its reader's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

from blockserver.client.session import Session
from blockserver.gateway import config, refusals
from blockserver.gateway.asked import Asked
from blockserver.gateway.documents import Report, Usage
from blockserver.gateway.metrics import Metrics
from blockserver.gateway.refusals import Refusal
from blockserver.gateway.sight import Sight
from blockserver.gateway.text import Detokeniser, StopFinder
from blockserver.gateway.turns import NoRoom, Turns
from blockserver.gateway.voice import Voice
from swarm.errors import LocalError, MissingBlocks, SwarmError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    before: int


@dataclass(frozen=True, slots=True)
class Begun:
    report: Report


@dataclass(frozen=True, slots=True)
class Piece:
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """`reason` as OpenAI names it: `stop` or `length`."""

    reason: str
    usage: Usage
    report: Report


Event = Waiting | Begun | Piece | Ended


@dataclass(frozen=True)
class Studio:
    """What all answers share."""

    voice: Voice
    turns: Turns
    sight: Sight
    metrics: Metrics
    quiet_s: float = config.QUIET_S
    wait_s: float = config.WAIT_S
    under_way: set[Answer] = field(default_factory=set)

    def stop(self) -> None:
        """Ends all answers; each reader is told."""
        for answer in tuple(self.under_way):
            answer.break_off()


class Answer:
    """Begins at once. `next` gives its events; `leave` when nobody reads on."""

    def __init__(self, studio: Studio, caller: str, asked: Asked, prompt: Sequence[int]) -> None:
        self._studio, self._caller, self._asked, self._prompt = studio, caller, asked, list(prompt)
        # Without a limit: an answer is short, and a reader that is slow must not hold a place in the swarm.
        self._events: asyncio.Queue[Event | Refusal | None] = asyncio.Queue()
        self._came = time.monotonic()
        self._first = self._last = 0.0
        self._count = 0
        studio.under_way.add(self)
        self._task = asyncio.create_task(self._run(), name="answer")
        self._task.add_done_callback(lambda _: studio.under_way.discard(self))

    async def next(self) -> Event | None:
        """None at the end. Raises Refusal where the answer cannot begin or go on; that is the end, too."""
        event = await self._events.get()
        if isinstance(event, Refusal):
            raise event
        return event

    def leave(self) -> None:
        """Once: what the task does when it is told to end is not to be broken off again."""
        if not self._task.done() and not self._task.cancelling():
            self._task.cancel()

    def break_off(self) -> None:
        """The gateway stops: the reader is told."""
        self._events.put_nowait(refusals.stopping())
        self.leave()

    async def _run(self) -> None:
        outcome, last = "gone", None
        try:
            await self._in_turn()
            outcome = "answered"
        except NoRoom as error:
            outcome, last = "refused", (refusals.yours_wait if error.yours else refusals.full)(error.waiting)
        except Refusal as refusal:
            outcome, last = "failed", refusal
        except SwarmError as error:
            outcome, last = "failed", self._explained(error)
        # Door: whatever else goes wrong, the reader must be told, and the log gets the traceback.
        except Exception:
            log.exception("an answer failed")
            outcome, last = "failed", refusals.our_fault()
        finally:
            self._studio.metrics.requests.labels(outcome).inc()
            self._events.put_nowait(last)

    async def _in_turn(self) -> None:
        studio = self._studio
        async with studio.turns.turn(self._caller, self._wait, studio.wait_s):
            studio.metrics.waited.observe(time.monotonic() - self._came)
            studio.metrics.tokens.labels("prompt").inc(len(self._prompt))
            session = studio.voice.model.session(len(self._prompt) + self._asked.max_tokens)
            with studio.metrics.sessions.track_inprogress():
                async with session:
                    try:
                        await self._speak(session)
                    finally:
                        studio.metrics.tokens.labels("completion").inc(self._count)
                        studio.metrics.recoveries.inc(session.recoveries)

    async def _speak(self, session: Session) -> None:
        """Tokens into pieces, until the model, a stop text or the limit ends it."""
        voice, asked = self._studio.voice, self._asked
        text, stops = Detokeniser(voice.decode), StopFinder(asked.stops)
        reason = "length"
        async with aclosing(self._tokens(session)) as tokens:
            async for token in tokens:
                if self._count == 1:
                    self._events.put_nowait(Begun(self._report(session)))
                if token in voice.model.stop_ids:
                    reason = "stop"
                    break
                self._say(stops.add(text.add(token)))
                if stops.found:
                    break
        self._say(stops.add(text.end()))
        self._say(stops.end())
        reason = "stop" if stops.found else reason
        self._events.put_nowait(Ended(reason, Usage(len(self._prompt), self._count), self._report(session)))

    async def _tokens(self, session: Session) -> AsyncGenerator[int, None]:
        """The model's, each within its time."""
        how = self._studio.voice.manner.sampling(self._asked)
        limit_s = config.FIRST_TOKEN_S + config.PROMPT_TOKEN_S * len(self._prompt)
        made = cast("AsyncGenerator[int, None]", self._studio.voice.model.generate(self._prompt, how, session))
        async with aclosing(made) as tokens:
            while True:
                try:
                    async with asyncio.timeout(limit_s):
                        token = await anext(tokens, None)
                except TimeoutError:
                    raise self._too_quiet(limit_s) from None
                if token is None:
                    return
                limit_s = self._studio.quiet_s
                self._counted()
                yield token

    def _counted(self) -> None:
        self._last = time.monotonic()
        self._count += 1
        if self._count == 1:
            self._first = self._last
            self._studio.metrics.first_token.observe(self._first - self._came)

    def _wait(self, before: int) -> None:
        self._events.put_nowait(Waiting(before))

    def _say(self, text: str) -> None:
        if text:
            self._events.put_nowait(Piece(text))

    def _report(self, session: Session) -> Report:
        took = self._last - self._first
        rate = (self._count - 1) / took if self._count > 1 and took > 0 else None
        return Report(session.route, rate, session.recoveries)

    def _too_quiet(self, limit_s: float) -> Refusal:
        sentence = self._studio.sight.sentence()
        if sentence:
            return refusals.swarm_incomplete(sentence)
        return refusals.servers_failed(f"no server gave the next token within {limit_s:g} s")

    def _explained(self, error: SwarmError) -> Refusal:
        if isinstance(error, MissingBlocks):
            self._studio.sight.met(error.blocks, time.time())
            return refusals.swarm_incomplete(self._studio.sight.sentence(error.blocks) if error.blocks else str(error))
        if isinstance(error, LocalError):
            return refusals.bad_request(str(error))
        # What libp2p says names addresses; those are people's homes.
        log.warning("an answer failed: %s", error)
        return refusals.servers_failed("the servers of this answer failed, and no others could take over")
