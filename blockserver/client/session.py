"""A conversation with a chain of servers, which survives the loss of any of them.

Each hop keeps the hidden states that went into it. When its server dies, stalls or refuses, other servers are found for the
same blocks, and what went in is replayed to them as a few long steps: the conversation goes on where it stood. Knows
routes and hidden states; not tokens, and not how a route is found.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from hivemind.p2p import P2P

from blockserver.client.stream import Limits, ServerStream
from blockserver.wire import protocol
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Route
from swarm.wire.spans import Span

FindRoute = Callable[[Span, Collection[str]], Awaitable[Route]]
"""Servers for these blocks without those peers, from the DHT as it is now. Raises MissingBlocks."""

REPLAY_TOKENS = 1_024
"""Tokens of one replayed step: short enough for other sessions on that server to get their turn in between."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a session looks for other servers when one is lost; in all about a minute by default."""

    attempts: int = 9
    first_pause_s: float = 0.25
    longest_pause_s: float = 16.0

    def pause_s(self, attempt: int) -> float:
        return min(self.first_pause_s * 2.0**attempt, self.longest_pause_s)


@dataclass(slots=True)
class _Link:
    """One server of the chain and all that went into it."""

    stream: ServerStream
    sent: list[torch.Tensor] = field(default_factory=list)

    async def step(
        self,
        hidden: torch.Tensor,
        step_id: str | None = None,
        onward: Sequence[protocol.NextServer] = (),
        push_from: str | None = None,
    ) -> torch.Tensor:
        output = await self.stream.step(hidden, step_id, onward, push_from)
        self.sent.append(hidden)
        return output


@dataclass
class Session:
    """Use it as `async with`. One step at a time; `max_length` tokens in all."""

    p2p: P2P
    prefix: str
    span: Span
    find_route: FindRoute
    max_length: int
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    push: bool = False
    """Servers hand their outputs on to each other, so that the way over the client is not waited for. The client sends each
    step to each server all the same, under one id: what a server's loss or a lost push leaves undone is done as without."""
    position: int = field(default=0, init=False)
    """Tokens that went through all blocks."""
    recoveries: int = field(default=0, init=False)
    """How often a server was replaced."""

    def __post_init__(self) -> None:
        self._chain: list[_Link] = []
        self._lost: set[str] = set()

    @property
    def route(self) -> Route:
        """The servers in use, in order."""
        return tuple(link.stream.hop for link in self._chain)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        chain, self._chain = self._chain, []
        await _close(chain)

    async def step(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states `[batch, tokens, hidden]` of new tokens through all blocks.

        Raises MissingBlocks where blocks have no server for as long as `patience` lasts, and another RemoteError where
        servers are there but fail each time.
        """
        tokens = hidden.shape[1]
        if self.position + tokens > self.max_length:
            raise LocalError(f"the session was opened for {self.max_length} tokens")
        if not self._chain:
            self._chain = self._links(await self.find_route(self.span, frozenset()))
        at, attempt = 0, 0
        # One id for the whole step, also after a server was replaced: a server that has done it must not do it again.
        step_id = str(uuid.uuid4())
        while at < len(self._chain):
            try:
                before = self._chain[at - 1].stream.hop.peer_id if self.push and at else None
                hidden = await self._chain[at].step(hidden, step_id, self._onward(at), before)
            except RemoteError as error:
                attempt = await self._replace(at, error, attempt)
            else:
                at += 1
        self.position += tokens
        return hidden

    def _onward(self, at: int) -> list[protocol.NextServer]:
        """The links after this one, as far as their sessions are open."""
        if not self.push:
            return []
        streams = [link.stream for link in self._chain[at + 1 :]]
        opened = takewhile(lambda stream: stream.is_open, streams)
        return [protocol.NextServer(stream.hop.peer_id, stream.session_id, stream.hop.span) for stream in opened]

    async def _replace(self, at: int, error: RemoteError, attempt: int) -> int:
        """Other servers in place of the chain's link `at`, fed with all that went into it. The attempts used so far."""
        failed = self._chain[at]
        self._give_up(failed, error)
        await _close([failed])
        while attempt < self.patience.attempts:
            pause_s = self.patience.pause_s(attempt)
            attempt += 1
            try:
                links = self._links(await self.find_route(failed.stream.hop.span, frozenset(self._lost)))
                await self._replay(links, failed.sent)
            except MissingBlocks as missing:
                # With nobody else left, a server that failed may be asked again: it may have come back.
                error = missing
                self._lost.clear()
            except RemoteError as another:
                error = another
            else:
                self._chain[at : at + 1] = links
                self.recoveries += 1
                return attempt
            await asyncio.sleep(pause_s)
        raise error

    async def _replay(self, links: list[_Link], sent: list[torch.Tensor]) -> None:
        if not sent:
            return
        for part in torch.split(torch.cat(sent, dim=1), REPLAY_TOKENS, dim=1):
            hidden = part
            for link in links:
                try:
                    hidden = await link.step(hidden)
                except RemoteError as error:
                    self._give_up(link, error)
                    await _close(links)
                    raise

    def _links(self, route: Route) -> list[_Link]:
        return [_Link(ServerStream(self.p2p, self.prefix, hop, self.max_length, self.limits)) for hop in route]

    def _give_up(self, link: _Link, error: RemoteError) -> None:
        hop = link.stream.hop
        log.warning("looking for another server for %s: %s failed: %s", hop.span.in_words(), hop.peer_id, error)
        self._lost.add(hop.peer_id)


async def _close(links: list[_Link]) -> None:
    await asyncio.gather(*(link.stream.close() for link in links))
