"""One open session, message by message: what comes next, from the client or from the server before, and what to answer.

Knows requests, time limits and the ids of steps; not streams of bytes, nor when a session begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import torch
from hivemind.proto import runtime_pb2

from blockserver.compute.engine import Engine, EngineStopped, Session, SessionEvicted
from blockserver.rpc.push import Inbox, Pushes
from blockserver.wire import protocol, tensors
from swarm.errors import RemoteError
from swarm.wire.spans import Span

STEP_TIMEOUT_S = 300.0
"""A session whose client says nothing for so long is closed, as in Petals."""

SESSION_TIMEOUT_S = 1_800.0
"""The longest that one session may hold its cache, as in Petals."""

REMEMBERED_STEPS = 1_024
"""Ids of recent steps of a session; a replay comes within a few steps of the first."""


class Conversation:
    """The steps of one open session, each computed once, whether the client or the server before sends it first."""

    def __init__(self, engine: Engine, span: Span, session: Session, inbox: Inbox, pushes: Pushes) -> None:
        self._engine = engine
        self._span = span
        self._session = session
        self._inbox = inbox
        self._pushes = pushes
        self._seen: dict[str, None] = {}
        self._pushing: asyncio.Task[None] | None = None

    async def step(
        self, request: runtime_pb2.ExpertRequest, *, pushed: bool, given: protocol.BlockInput | None = None
    ) -> runtime_pb2.ExpertResponse | None:
        """None for a step that was answered before, and for a push that cannot be used. `given` where it is parsed already."""
        if not pushed:
            return await self._step(request, given)
        try:
            return await self._step(request, pushed=True)
        except EngineStopped:
            raise
        except RemoteError:
            self._pushes.ignored["unusable"] += 1
            return None

    async def _step(
        self, request: runtime_pb2.ExpertRequest, given: protocol.BlockInput | None = None, *, pushed: bool = False
    ) -> runtime_pb2.ExpertResponse | None:
        metadata = protocol.parse_metadata(request.metadata)
        step = protocol.parse_step(metadata)
        given = given or block_input_of(self._engine, self._span, metadata, request.tensors)
        plain = given.prompts is None and given.rows is None
        if pushed and (step.step_id is None or not plain):
            # Rows among them: a step that fails has already changed their places, and its copy would do so again.
            raise RemoteError("a pushed step has an id, and neither prompts nor rows")
        if step.push_from is not None and not pushed:
            self._inbox.named = step.push_from
        if step.step_id in self._seen:
            self._pushes.ignored["late"] += pushed
            return None
        output = await self._engine.step(self._session, given, step.position)
        self._remember(step.step_id)
        if pushed:
            self._pushes.taken += 1
        else:
            self._inbox.client_was_first()
        answer = runtime_pb2.ExpertResponse(tensors=encoded([output], metadata))
        if step.onward and plain and (self._pushing is None or self._pushing.done()):
            self._pushing = self._pushes.send(step.onward, metadata, [*answer.tensors, *request.tensors[1:]])
        return answer

    def _remember(self, step_id: str | None) -> None:
        """Forgets the oldest beyond the limit."""
        if step_id is not None:
            self._seen[step_id] = None
            if len(self._seen) > REMEMBERED_STEPS:
                del self._seen[next(iter(self._seen))]


class Incoming:
    """Requests of one inference stream, pushed ones among them, with the time limits of a session, until the server gives
    up its blocks or the engine ends the session. `pushed` says where the last one came from."""

    def __init__(self, requests: AsyncIterator[runtime_pb2.ExpertRequest], moved: asyncio.Future[None]) -> None:
        self._requests = requests
        self._moved = moved
        self._ends = asyncio.get_running_loop().time() + SESSION_TIMEOUT_S
        self._inbox: Inbox | None = None
        self._session: Session | None = None
        self._asked: asyncio.Future[runtime_pb2.ExpertRequest | None] | None = None
        self.pushed = False

    def expect(self, session: Session, inbox: Inbox) -> None:
        self._session, self._inbox = session, inbox

    async def next(self) -> runtime_pb2.ExpertRequest | None:
        """None where the client has ended the stream."""
        asked = self._asked = self._asked or asyncio.ensure_future(anext(self._requests, None))
        others: list[asyncio.Future[Any]] = [self._moved]
        if self._session is not None:
            others.append(self._session.ended)
        if self._inbox is not None:
            others.append(self._inbox.arrived)
        timeout = min(self._ends - asyncio.get_running_loop().time(), STEP_TIMEOUT_S)
        await asyncio.wait({asked, *others}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._moved.done():
            raise EngineStopped("this server no longer holds the session's blocks")
        if self._session is not None and self._session.ended.done():
            raise SessionEvicted(self._session.ended.result())
        self.pushed = not asked.done() and self._inbox is not None and self._inbox.arrived.done()
        if self.pushed and self._inbox is not None:
            return self._inbox.take()
        if not asked.done():
            raise RemoteError("the session was open, or silent, for too long")
        self._asked = None
        return asked.result()

    def close(self) -> None:
        if self._asked is not None:
            self._asked.cancel()


def arguments_of(metadata: dict[str, Any], messages: Sequence[runtime_pb2.Tensor], at_least: int = 1) -> list[torch.Tensor]:
    if len(messages) > protocol.MAX_TENSORS:
        raise RemoteError(f"a request holds at most {protocol.MAX_TENSORS} tensors")
    arguments = protocol.arrange(metadata, [tensors.decode(message) for message in messages])
    if len(arguments) < at_least:
        raise RemoteError(f"at least {at_least} tensors are expected, not {len(arguments)}")
    return arguments


def block_input_of(
    engine: Engine, span: Span, metadata: dict[str, Any], messages: Sequence[runtime_pb2.Tensor]
) -> protocol.BlockInput:
    arguments = arguments_of(metadata, messages)
    return protocol.block_input(arguments, len(span), engine.facts.hidden_size, engine.dtype)


def encoded(outputs: Sequence[torch.Tensor], metadata: dict[str, Any]) -> list[runtime_pb2.Tensor]:
    asked = protocol.parse_compression(metadata, len(outputs))
    return [tensors.encode(output, compression) for output, compression in zip(outputs, asked, strict=True)]
