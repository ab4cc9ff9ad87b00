"""p2p request -> engine -> reply, in Petals' protocol.

Knows messages and streams; parsing is `protocol`, computing is `engine`, what happens within a session is `conversation`.
Each inference stream is one session: however it ends, its cache is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator  # noqa: UP035 - hivemind knows streams by typing's name only

import torch
from hivemind.p2p import P2P, P2PContext, ServicerBase
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from hivemind.utils.tensor_descr import BatchTensorDescriptor

from blockserver.compute.engine import Engine, Session
from blockserver.rpc.conversation import STEP_TIMEOUT_S, Conversation, Incoming, arguments_of, block_input_of, encoded
from blockserver.rpc.push import Pushes
from blockserver.wire import protocol, tensors
from swarm.errors import LocalError, RemoteError

MAX_REQUEST_BYTES = 2 * tensors.MAX_TENSOR_BYTES
"""All tensors of a streamed request: hidden states and their gradient."""


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
        self.pushes = Pushes(p2p, prefix)
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
        # It writes a traceback for each request that is refused: much text, and a stranger decides how much.
        logging.getLogger(P2P.__module__).setLevel(logging.CRITICAL)
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

    def set_prefix(self, prefix: str) -> None:
        """Serves another model from now on. The old one's engine is gone before: no request for one may reach the other."""
        if self._engine is not None:
            raise LocalError("the blocks of the old model are still served")
        self._prefix = prefix
        self.pushes.prefix = prefix

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
        incoming = Incoming(requests, self._moved)
        try:
            request = await incoming.next()
            if request is None or not request.tensors:
                return
            engine = self._engine_for_new_work()
            metadata = protocol.parse_metadata(request.metadata)
            span = protocol.parse_span(request.uid, self._prefix, engine.span)
            opening = protocol.parse_opening(metadata, span, longest_session(engine))
            given = block_input_of(engine, span, metadata, request.tensors)
            async with self._session(engine, opening, given.hidden.shape[0]) as session:
                with self.pushes.inbox(opening.session_id) as inbox:
                    incoming.expect(session, inbox)
                    conversation = Conversation(engine, span, session, inbox, self.pushes)
                    answer = await conversation.step(request, pushed=False, given=given)
                    while True:
                        if answer is not None:
                            yield answer
                        request = await incoming.next()
                        if request is None or not request.tensors:
                            return
                        answer = await conversation.step(request, pushed=incoming.pushed)
        finally:
            incoming.close()

    async def rpc_push(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        """Another server's output, for a session here. Whatever is wrong with it, the answer is the same: empty."""
        try:
            session_id = protocol.parse_pushed_to(protocol.parse_metadata(request.metadata))
        except RemoteError:
            self.pushes.ignored["malformed"] += 1
        else:
            self.pushes.receive(context.remote_id.to_base58(), session_id, request)
        return runtime_pb2.ExpertResponse()

    # ------------------------------------------------------------------------------------------------------- within

    @asynccontextmanager
    async def _session(self, engine: Engine, opening: protocol.Opening, batch: int) -> AsyncIterator[Session]:
        session = await engine.open(opening.span, batch, opening.max_length, opening.alloc_timeout_s, opening.adapter)
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
        adapter = protocol.parse_adapter(metadata)
        span = protocol.parse_span(request.uid, self._prefix, engine.span)
        given = block_input_of(engine, span, metadata, request.tensors)
        return encoded([await engine.forward(span, given, adapter)], metadata)

    async def _backward(self, request: runtime_pb2.ExpertRequest) -> list[runtime_pb2.Tensor]:
        engine = self._engine_for_new_work()
        metadata = protocol.parse_metadata(request.metadata)
        adapter = protocol.parse_adapter(metadata)
        span = protocol.parse_span(request.uid, self._prefix, engine.span)
        hidden, gradient, *prompts = arguments_of(metadata, request.tensors, at_least=2)
        given = protocol.block_input([hidden, *prompts], len(span), engine.facts.hidden_size, engine.dtype)
        gradients = await engine.backward(span, given, protocol.gradient(gradient, given.hidden), adapter)
        return encoded(gradients, metadata)

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


def longest_session(engine: Engine) -> int:
    """Tokens, as in Petals: fewer for models in which every head has keys and values of its own."""
    heads = getattr(engine.module.config, "num_attention_heads", None)
    grouped = heads is not None and engine.facts.kv_heads < heads
    return protocol.MAX_LENGTH if grouped else protocol.MAX_LENGTH_UNGROUPED
