"""A conversation with a chain of servers, which survives the loss of any of them.

Each link keeps the hidden states that went into it. When its server dies, stalls, refuses or answers nonsense, other servers
are found for the same blocks, and what went in is replayed to them as a few long steps: the conversation goes on where it
stood. Knows chains and hidden states; not tokens, and not how a route is found.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from hivemind.p2p import P2P

from blockserver.client.audit import Audit
from blockserver.client.link import Link, LinkFailed, close, next_server, part_for, replay
from blockserver.client.no_server import no_server
from blockserver.client.notes import Notes
from blockserver.client.routes import FindRoute, Router, as_router
from blockserver.client.stopwatch import Stopwatch
from blockserver.client.stream import BadAnswer, Limits, ServerStream, StepRequest
from blockserver.wire.protocol import BlockInput, NextServer
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Hop, Route, Wanted
from swarm.wire.spans import Span

__all__ = ["FindRoute", "Patience", "Session"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a session looks for other servers when one is lost; in all about a minute by default."""

    attempts: int = 9
    first_pause_s: float = 0.25
    longest_pause_s: float = 16.0

    def pause_s(self, attempt: int) -> float:
        return min(self.first_pause_s * 2.0**attempt, self.longest_pause_s)


@dataclass
class Session:
    """Use it as `async with`. One step at a time; `max_length` tokens in all, in each row of a batch."""

    p2p: P2P
    prefix: str
    span: Span
    find_route: FindRoute | Router
    max_length: int
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    push: bool = True
    """Servers hand their outputs on to each other, so that a token takes the way around once and not once to each server.
    Where a push does not come, the client sends the step itself, under the same id, which is then done as without."""
    allowed: frozenset[str] | None = None
    """Use no other peers than these."""
    blocked: frozenset[str] = frozenset()
    """Never use these."""
    audit: Audit | None = None
    """Compares a share of the steps with what other servers compute."""
    notes: Notes | None = None
    """Takes down which servers worked, which failed, and how fast they were."""
    position: int = field(default=0, init=False)
    """Tokens that went through all blocks."""
    recoveries: int = field(default=0, init=False)
    """How often a server was replaced."""

    def __post_init__(self) -> None:
        self._router = as_router(self.find_route)
        self._chain: list[Link] = []
        self._batch = 0

    @property
    def route(self) -> Route:
        """The servers in use, in order."""
        return tuple(link.hop for link in self._chain)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self.audit is not None:
            await self.audit.finish()
        await self._hang_up()

    async def _hang_up(self) -> None:
        chain, self._chain = self._chain, []
        await close(chain)

    async def step(
        self, hidden: torch.Tensor, *, hypo_ids: torch.Tensor | None = None, prompts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of new tokens through all blocks of the session's span.

        `hypo_ids` `[batch]`: before the step, row i of the batch takes over what row `hypo_ids[i]` holds (beam search).
        `prompts` `[blocks, batch or 1, prefix, hidden]` are added to the first `prefix` positions of each block's input.

        Raises MissingBlocks where blocks have no server for as long as `patience` lasts, and another RemoteError where
        servers are there but fail each time. After an error the session stands where it stood before the step.
        """
        given = self._checked(hidden, hypo_ids, prompts)
        if self._batch != hidden.shape[0]:
            # The session is empty, but servers have reserved cache for as many rows as it had.
            await self._hang_up()
            self._batch = hidden.shape[0]
        if not self._chain:
            self._chain = await self._find_first()
        for link in self._chain:
            if link.stream.has_ended:  # it was idle while others waited for its cache: no fault, and the way is known
                link.disconnect()
        with self._all_or_nothing():
            output = await self._through(given)
        self.position += hidden.shape[1]
        if self.audit is not None:
            self.audit.consider(self._chain, hidden.shape[1], self._find, self._router.about)
        return output

    def rollback(self, position: int) -> None:
        """Forgets the tokens from `position` on. Servers are told with the next step."""
        if not 0 <= position <= self.position:
            raise LocalError(f"a session with {self.position} tokens cannot go back to position {position}")
        self.position = position
        for link in self._chain:
            link.history.cut(position)

    # ------------------------------------------------------------------------------------------------------ one step

    async def _through(self, given: BlockInput) -> torch.Tensor:
        # One id for the whole step, also after a server was replaced: a server that has done it must not do it again.
        at, attempt, step_id, hidden = 0, 0, str(uuid.uuid4()), given.hidden
        began, pushed = time.monotonic(), False
        while at < len(self._chain):
            link = self._chain[at]
            onward = self._onward(at, given)
            before = self._chain[at - 1].hop.peer_id if self.push and at else None
            part = part_for(link, self.span, given, hidden)
            request = StepRequest(part, step_id, self._rollback_at(at), onward, before)
            watch = None if pushed or self.notes is None else Stopwatch(link, request.size)
            try:
                hidden = await link.step(request, pushed_since=began if pushed else None)
            except RemoteError as error:
                if isinstance(error, BadAnswer):
                    self._distrust(at, onward)
                attempt, pushed = await self._replace(at, error, attempt), False
                continue
            self._router.worked(link.hop.peer_id)
            self._note(link, watch)
            at += 1
            pushed = bool(onward) and self._chain[at].takes_push(link.hop, hidden)
        return hidden

    def _rollback_at(self, at: int) -> int | None:
        """Where the step begins, unless that is where all servers from here on stand anyway."""
        behind = any(link.stream.position != self.position for link in self._chain[at:] if link.stream.is_open)
        return self.position if behind else None

    def _onward(self, at: int, given: BlockInput) -> list[NextServer]:
        """The links after this one, as far as their sessions are open. Servers push neither prompts nor beams."""
        if not self.push or given.prompts is not None or given.rows is not None:
            return []
        return [next_server(link) for link in takewhile(lambda link: link.stream.is_open, self._chain[at + 1 :])]

    def _distrust(self, at: int, onward: Sequence[NextServer]) -> None:
        """What a server answers wrongly it has also pushed: those after it begin anew from what is known to be right."""
        for link in self._chain[at + 1 : at + 1 + len(onward)]:
            link.disconnect()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        for link in self._chain:
            link.history.mark()
        try:
            yield
        except BaseException:  # cancellation above all: whoever stops an answer may want to go on with another question
            for link in self._chain:
                link.history.undo()
                link.disconnect()
            raise

    # ------------------------------------------------------------------------------------------------------ recovery

    async def _replace(self, at: int, error: RemoteError, attempt: int) -> int:
        """Other servers in place of the chain's link `at`, fed with all that went into it. The attempts used so far."""
        failed, since = self._chain[at], time.time()
        self._give_up(failed, error)
        await failed.stream.close()
        while attempt < self.patience.attempts:
            pause_s = self.patience.pause_s(attempt)
            attempt += 1
            try:
                links = await self._find(failed.hop.span)
                await replay(links, failed.history)
            except MissingBlocks as missing:
                # With nobody else left, a server that failed may be asked again: it may have come back.
                error = missing
                self._router.forgive()
            except LinkFailed as another:
                error = another.error
                self._give_up(another.link, error)
            except RemoteError as another:
                error = another
            else:
                for link in links:
                    link.history.mark()
                self._chain[at : at + 1] = links
                self.recoveries += 1
                return attempt
            await asyncio.sleep(pause_s)
        if isinstance(error, MissingBlocks):
            raise error
        raise no_server(failed.hop.span, since, now=time.time(), page=self._router.page, last_words=str(error)) from error

    async def _find_first(self) -> list[Link]:
        try:
            return await self._find(self.span)
        except MissingBlocks:
            # Perhaps only because another session of this client was let down by the last server of some blocks.
            self._router.forgive()
            return await self._find(self.span)

    async def _find(self, span: Span, without: Collection[str] = ()) -> list[Link]:
        tokens = self.max_length * self._batch
        route = await self._router.find(Wanted(span, tokens, self.push, self.allowed, self.blocked | frozenset(without)))
        return [Link(hop, self._connect) for hop in route]

    def _connect(self, hop: Hop) -> ServerStream:
        return ServerStream(self.p2p, self.prefix, hop, self.max_length, self.limits)

    def _note(self, link: Link, watch: Stopwatch | None) -> None:
        if self.notes is not None:
            self.notes.worked(link.hop.peer_id)
            if watch is not None and (one := watch.passed(self._router)) is not None:
                self.notes.timed(link.hop.peer_id, one)

    def _give_up(self, link: Link, error: RemoteError) -> None:
        if self.notes is not None:
            self.notes.failed(link.hop.peer_id, str(error))
        log.warning("looking for another server for %s: %s failed: %s", link.hop.span.in_words(), link.hop.peer_id, error)
        self._router.failed(link.hop.peer_id)

    def _checked(self, hidden: torch.Tensor, hypo_ids: torch.Tensor | None, prompts: torch.Tensor | None) -> BlockInput:
        batch, tokens, size = hidden.shape
        if not tokens or not batch:
            raise LocalError("a step needs at least one token")
        if self.position and batch != self._batch:
            raise LocalError(f"the session was begun with a batch of {self._batch}, not {batch}")
        if self.position + tokens > self.max_length:
            raise LocalError(f"the session was opened for {self.max_length} tokens")
        if hypo_ids is not None and (hypo_ids.shape != (batch,) or not 0 <= int(hypo_ids.min()) <= int(hypo_ids.max()) < batch):
            raise LocalError(f"hypo_ids name a row of the batch for each of its {batch} rows")
        if prompts is not None and (
            prompts.ndim != 4
            or (prompts.shape[0], prompts.shape[3]) != (len(self.span), size)
            or prompts.shape[1] not in (1, batch)
            or prompts.shape[2] > tokens
        ):
            raise LocalError(f"prompts are [{len(self.span)}, {batch}, up to {tokens}, {size}], not {list(prompts.shape)}")
        rows = None if hypo_ids is None else torch.LongTensor(hypo_ids.to("cpu", torch.int64))
        return BlockInput(hidden, prompts if prompts is not None and prompts.shape[2] else None, rows)
