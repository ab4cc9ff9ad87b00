"""p2p request -> engine -> reply, in Petals' protocol.

Knows messages, streams and time limits; parsing is `protocol`, computing is `engine`. Each inference stream is one session:
however it ends, its cache is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator  # noqa: UP035 - hivemind knows streams by typing's name only

import torch
from hivemind.p2p import P2P, P2PContext, ServicerBase
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from hivemind.utils.tensor_descr import BatchTensorDescriptor

from blockserver import protocol, tensors
from blockserver.engine import Engine, EngineStopped, Session
from swarm.errors import RemoteError
from swarm.wire.spans import Span

STEP_TIMEOUT_S = 300.0
"""A session whose client says nothing for so long is closed, as in Petals."""

SESSION_TIMEOUT_S = 1_800.0
"""The longest that one session may hold its cache, as in Petals."""

MAX_REQUEST_BYTES = 2 * tensors.MAX_TENSOR_BYTES
"""All tensors of a streamed request: hidden states and their gradient."""

REMEMBERED_STEPS = 1_024
"""Ids of recent steps of a session; a replay comes within a few steps of the first."""


class TransformerConnectionHandler(ServicerBase):
    """hivemind registers the `rpc_` methods under the class's name, which is Petals' name for them.

    `engine` None means that no blocks are held for the moment: all but `rpc_info` is refused. `about` says what `rpc_info`
    carries beside Petals' keys. Make it on the running loop.
    """

    def __init__(
        self,
        p2p: P2P,
        prefix: str,
        engine: Engine | None,
        *,
        version: str,
        dht_client_mode: bool,
        about: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._p2p = p2p
        self._prefix = prefix
        self._engine = engine
        self._version = version
        self._dht_client_mode = dht_client_mode
        self._about = about
        self._draining = False
        self._moved = asyncio.get_running_loop().create_future()
        self._sessions = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def sessions_active(self) -> int:
        return self._sessions

    @property
    def cache_tokens_left(self) -> int:
        return self._engine.cache_tokens_left if self._engine else 0

    async def start(self) -> None:
        await self.add_p2p_handlers(self._p2p)

    async def stop(self, drain_s: float = 20.0) -> None:
        """Refuses new sessions, waits up to `drain_s` for the open ones, then ends what is left and deregisters."""
        self._draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), drain_s)
        except TimeoutError:
            self._end_sessions()
        await self.remove_p2p_handlers(self._p2p)

    def set_engine(self, engine: Engine | None) -> None:
        """Serves another span from now on. Sessions on the old one end with an error; the old engine is stopped."""
        old, self._engine = self._engine, engine
        if old is not engine:
            self._end_sessions()
            if old:
                old.stop()

    def _end_sessions(self) -> None:
        self._moved.set_result(None)
        self._moved = asyncio.get_running_loop().create_future()

    # ------------------------------------------------------------------------------------------------- the servicer

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        answer: dict[str, Any] = {
            "version": self._version,
            "dht_client_mode": self._dht_client_mode,
            "cache_tokens_available": self.cache_tokens_left,
        }
        answer.update(self._about())
        if request.uid:
            answer.update(self._schema(request.uid))
        return runtime_pb2.ExpertInfo(serialized_info=MSGPackSerializer.dumps(answer))

    async def rpc_forward(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        return runtime_pb2.ExpertResponse(tensors=await self._forward(request))

    async def rpc_forward_stream(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        for tensor in await self._forward(await _gather(requests)):
            for part in tensors.split(tensor):
                yield runtime_pb2.ExpertResponse(tensors=[part])

    async def rpc_backward(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        return runtime_pb2.ExpertResponse(tensors=await self._backward(request))

    async def rpc_backward_stream(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        for tensor in await self._backward(await _gather(requests)):
            for part in tensors.split(tensor):
                yield runtime_pb2.ExpertResponse(tensors=[part])

    async def rpc_inference(
        self, requests: AsyncIterator[runtime_pb2.ExpertRequest], context: P2PContext
    ) -> AsyncIterator[runtime_pb2.ExpertResponse]:
        incoming = _Incoming(requests, self._moved)
        request = await incoming.next()
        if request is None or not request.tensors:
            return
        engine = self._engine_for_new_work()
        metadata = protocol.parse_metadata(request.metadata)
        span = protocol.parse_span(request.uid, self._prefix, engine.span)
        opening = protocol.parse_opening(metadata, span)
        given = _block_input(engine, span, metadata, request.tensors)
        async with self._session(engine, opening, given.hidden.shape[0]) as session:
            seen: dict[str, None] = {}
            while True:
                step = protocol.parse_step(metadata)
                if _is_new(step.step_id, seen):
                    output = await engine.step(session, given, step.position)
                    yield runtime_pb2.ExpertResponse(tensors=_encoded([output], metadata))
                request = await incoming.next()
                if request is None or not request.tensors:
                    return
                metadata = protocol.parse_metadata(request.metadata)
                given = _block_input(engine, span, metadata, request.tensors)

    async def rpc_push(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        """Ignored, as a push to an unknown session is: its client sends the same step itself a moment later."""
        return runtime_pb2.ExpertResponse()

    # ------------------------------------------------------------------------------------------------------- within

    @asynccontextmanager
    async def _session(self, engine: Engine, opening: protocol.Opening, batch: int) -> AsyncIterator[Session]:
        session = await engine.open(opening.span, batch, opening.max_length, opening.alloc_timeout_s)
        self._sessions += 1
        self._idle.clear()
        try:
            yield session
        finally:
            engine.close(session)
            self._sessions -= 1
            if not self._sessions:
                self._idle.set()

    def _engine_for_new_work(self) -> Engine:
        if self._engine is None:
            raise RemoteError("this server holds no blocks at the moment: it is loading others")
        if self._draining:
            raise RemoteError("this server is about to stop and takes no new work")
        return self._engine

    async def _forward(self, request: runtime_pb2.ExpertRequest) -> list[runtime_pb2.Tensor]:
        engine = self._engine_for_new_work()
        metadata = protocol.parse_metadata(request.metadata)
        protocol.refuse_adapter(metadata)
        span = protocol.parse_span(request.uid, self._prefix, engine.span)
        given = _block_input(engine, span, metadata, request.tensors)
        return _encoded([await engine.forward(span, given)], metadata)

    async def _backward(self, request: runtime_pb2.ExpertRequest) -> list[runtime_pb2.Tensor]:
        engine = self._engine_for_new_work()
        metadata = protocol.parse_metadata(request.metadata)
        protocol.refuse_adapter(metadata)
        span = protocol.parse_span(request.uid, self._prefix, engine.span)
        hidden, gradient, *prompts = _arguments(metadata, request.tensors, at_least=2)
        given = protocol.block_input([hidden, *prompts], len(span), engine.facts.hidden_size, engine.dtype)
        gradients = await engine.backward(span, given, protocol.gradient(gradient, given.hidden))
        return _encoded(gradients, metadata)

    def _schema(self, uid: str) -> dict[str, Any]:
        engine = self._engine
        try:
            if engine is None:
                raise KeyError(uid)
            protocol.parse_span(uid, self._prefix, engine.span)
        except RemoteError as error:
            raise KeyError(uid) from error  # Petals' answer for a block that is not held, to the letter
        hidden = BatchTensorDescriptor(1, protocol.SCHEMA_TOKENS, engine.facts.hidden_size, dtype=engine.dtype)
        prompts, rows = BatchTensorDescriptor(dtype=engine.dtype), BatchTensorDescriptor(dtype=torch.int64)
        return {
            "forward_schema": ((hidden,), {}),
            "outputs_schema": (hidden,),
            "keyword_names": (),
            "inference_schema": ((hidden, prompts, rows), {}),
        }


class _Incoming:
    """Requests of one inference stream, with the time limits of a session, until the server gives up its blocks."""

    def __init__(self, requests: AsyncIterator[runtime_pb2.ExpertRequest], moved: asyncio.Future[None]) -> None:
        self._requests = requests
        self._moved = moved
        self._ends = asyncio.get_running_loop().time() + SESSION_TIMEOUT_S

    async def next(self) -> runtime_pb2.ExpertRequest | None:
        """None where the client has ended the stream."""
        left = self._ends - asyncio.get_running_loop().time()
        request = asyncio.ensure_future(anext(self._requests, None))
        try:
            timeout = min(left, STEP_TIMEOUT_S)
            await asyncio.wait({request, self._moved}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if self._moved.done():
                raise EngineStopped("this server no longer holds the session's blocks")
            if not request.done():
                raise RemoteError("the session was open, or silent, for too long")
            return request.result()
        finally:
            request.cancel()


async def _gather(requests: AsyncIterator[runtime_pb2.ExpertRequest]) -> runtime_pb2.ExpertRequest:
    """A request that came in parts as one: uid and metadata of the first, tensors put together."""
    first: runtime_pb2.ExpertRequest | None = None
    parts: list[runtime_pb2.Tensor] = []
    received = 0
    async with asyncio.timeout(STEP_TIMEOUT_S):
        async for request in requests:
            first = first or request
            parts.extend(request.tensors)
            received += sum(len(part.buffer) for part in request.tensors)
            if received > MAX_REQUEST_BYTES:
                raise RemoteError(f"a request may hold {MAX_REQUEST_BYTES:,} bytes of tensors")
    if first is None:
        raise RemoteError("an empty stream is no request")
    return runtime_pb2.ExpertRequest(uid=first.uid, tensors=tensors.join(parts), metadata=first.metadata)


def _arguments(metadata: dict[str, Any], messages: Sequence[runtime_pb2.Tensor], at_least: int = 1) -> list[torch.Tensor]:
    if len(messages) > protocol.MAX_TENSORS:
        raise RemoteError(f"a request holds at most {protocol.MAX_TENSORS} tensors")
    arguments = protocol.arrange(metadata, [tensors.decode(message) for message in messages])
    if len(arguments) < at_least:
        raise RemoteError(f"at least {at_least} tensors are expected, not {len(arguments)}")
    return arguments


def _block_input(
    engine: Engine, span: Span, metadata: dict[str, Any], messages: Sequence[runtime_pb2.Tensor]
) -> protocol.BlockInput:
    arguments = _arguments(metadata, messages)
    return protocol.block_input(arguments, len(span), engine.facts.hidden_size, engine.dtype)


def _encoded(outputs: Sequence[torch.Tensor], metadata: dict[str, Any]) -> list[runtime_pb2.Tensor]:
    asked = protocol.parse_compression(metadata, len(outputs))
    return [tensors.encode(output, compression) for output, compression in zip(outputs, asked, strict=True)]


def _is_new(step_id: str | None, seen: dict[str, None]) -> bool:
    """A step is computed once. Remembers the id; forgets the oldest beyond the limit."""
    if step_id is None:
        return True
    if step_id in seen:
        return False
    seen[step_id] = None
    if len(seen) > REMEMBERED_STEPS:
        del seen[next(iter(seen))]
    return True
