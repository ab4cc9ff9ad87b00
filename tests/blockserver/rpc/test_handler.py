"""The server's side of the protocol over real connections: what is refused, what is freed, what goes on working."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P, P2PDaemonError, P2PHandlerError
from hivemind.proto import dht_pb2, runtime_pb2
from hivemind.utils import MSGPackSerializer
from transformers import PreTrainedModel

from blockserver.compute.engine import Engine
from blockserver.model.blocks import load_span
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.rpc.reachability import ReachabilityProtocol
from blockserver.wire import protocol, tensors
from swarm.wire.spans import Span
from tests.blockserver.loopback import Serving, loopback_peer, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
HIDDEN = 32
HELD = Span(1, 4)
TOKENS = 50
ALL_FREE = 2 * len(HELD) * TOKENS
DUMMIES = [torch.empty(0), torch.empty(0, dtype=torch.int64)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_server(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[Serving]:
    async with serving(tiny[0], HELD, "tiny", client, cache_tokens=TOKENS) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def server(lasting_server: Serving) -> AsyncIterator[Serving]:
    """Blocks 1:4 of the tiny Llama, with cache for 50 tokens of each. Whatever a test does, nothing of it may stay."""
    assert lasting_server.handler.cache_tokens_left == ALL_FREE
    yield lasting_server
    while OPENED:
        await OPENED.pop().break_off()
    await freed(lasting_server)


@pytest_asyncio.fixture(loop_scope="module")
async def brief_server(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[Serving]:
    """The same, for a test that moves or stops it."""
    async with serving(tiny[0], HELD, "tiny", client, cache_tokens=TOKENS) as one:
        yield one


def step(
    hidden: torch.Tensor | None = None, *rest: torch.Tensor, uid: str = "tiny.1 tiny.2 tiny.3", **metadata: Any
) -> runtime_pb2.ExpertRequest:
    sent = [torch.zeros(1, 1, HIDDEN) if hidden is None else hidden, *(rest or DUMMIES)]
    return runtime_pb2.ExpertRequest(
        uid=uid,
        tensors=[tensors.encode(tensor) for tensor in sent],
        metadata=MSGPackSerializer.dumps({"args_structure": protocol.structure(len(sent)), **metadata}),
    )


OPENED: list[Stream] = []
"""The test's streams, which its server fixture breaks off."""


class Stream:
    """An inference stream driven by hand."""

    def __init__(self, client: P2P, server: Serving) -> None:
        self._client, self._server = client, server
        self._sent: asyncio.Queue[runtime_pb2.ExpertRequest | None] = asyncio.Queue()

    async def open(self) -> Stream:
        self._answers = await self._client.iterate_protobuf_handler(
            self._server.peer, protocol.rpc_name("rpc_inference"), self._requests(), runtime_pb2.ExpertResponse
        )
        OPENED.append(self)
        return self

    async def _requests(self) -> AsyncIterator[runtime_pb2.ExpertRequest]:
        while (request := await self._sent.get()) is not None:
            yield request

    def send(self, request: runtime_pb2.ExpertRequest | None) -> None:
        self._sent.put_nowait(request)

    async def answer(self) -> torch.Tensor | None:
        """The next answer, None at the end of the stream."""
        async with asyncio.timeout(20):
            answer = await anext(self._answers, None)
        return None if answer is None else tensors.decode(answer.tensors[0])

    async def ask(self, request: runtime_pb2.ExpertRequest) -> torch.Tensor | None:
        self.send(request)
        return await self.answer()

    async def end(self) -> torch.Tensor | None:
        """Says goodbye as Petals' client does, by an empty request. Gives what the server says to that."""
        self.send(runtime_pb2.ExpertRequest())
        self.send(None)
        return await self.answer()

    async def break_off(self) -> None:
        await self._answers.aclose()


async def freed(server: Serving) -> None:
    """Waits for the last session to end."""
    async with asyncio.timeout(20):
        await server.handler._idle.wait()
    assert server.handler.cache_tokens_left == ALL_FREE
    assert server.handler.sessions_active == 0


BAD_OPENINGS: dict[str, tuple[runtime_pb2.ExpertRequest, str]] = {
    "garbage metadata": (
        runtime_pb2.ExpertRequest(uid="tiny.1", tensors=step().tensors, metadata=b"\xc1\xff\x00"),
        "metadata cannot be read",
    ),
    "metadata that is no map": (
        runtime_pb2.ExpertRequest(uid="tiny.1", tensors=step().tensors, metadata=b"\x01"),
        "metadata cannot be read",
    ),
    "garbage tensor": (
        runtime_pb2.ExpertRequest(
            uid="tiny.1",
            tensors=[runtime_pb2.Tensor(buffer=b"123", size=[1, 1, HIDDEN], dtype="float32")],
            metadata=MSGPackSerializer.dumps({"max_length": 4}),
        ),
        "with a buffer of 3 bytes",
    ),
    "unknown dtype": (
        runtime_pb2.ExpertRequest(
            uid="tiny.1",
            tensors=[runtime_pb2.Tensor(buffer=b"123", size=[3], dtype="object")],
            metadata=MSGPackSerializer.dumps({"max_length": 4}),
        ),
        "no place on the wire",
    ),
    "integers": (step(torch.zeros(1, 1, HIDDEN, dtype=torch.int64), max_length=4), "hidden states are floats"),
    "wrong width": (step(torch.zeros(1, 1, HIDDEN + 1), max_length=4), "hidden states are floats"),
    "wrong rank": (step(torch.zeros(HIDDEN), max_length=4), "hidden states are floats"),
    "no length": (step(), "must say its max_length"),
    "huge length": (step(max_length=2**40), "not within 0 to 8,192"),
    "length beyond the cache": (step(max_length=TOKENS + 1), "150 in all"),
    "batch beyond the cache": (step(torch.zeros(51, 1, HIDDEN), max_length=1), "150 in all"),
    "more tokens than reserved": (step(torch.zeros(1, 5, HIDDEN), max_length=4), "more than the 4 reserved"),
    "unknown adapter": (step(max_length=4, active_adapter="mine"), "no adapter 'mine'"),
    "unknown model": (step(uid="other.1", max_length=4), "no block of tiny"),
    "block not held": (step(uid="tiny.3 tiny.4", max_length=4), "not served here"),
    "rows that are not there": (
        step(torch.zeros(1, 1, HIDDEN), torch.empty(0), torch.tensor([3]), max_length=4),
        "name rows 0 to 0",
    ),
    "position never reached": (step(max_length=4, start_from_position=3), "cannot go back to position 3"),
    "too many tensors": (step(torch.zeros(1, 1, HIDDEN), *[torch.empty(0)] * 20, max_length=4), "at most 8 tensors"),
    "not finite": (step(torch.full((1, 1, HIDDEN), torch.nan), max_length=4), "not finite"),
}


@pytest.mark.parametrize("case", BAD_OPENINGS)
async def test_a_bad_opening_is_a_clear_error_and_leaks_nothing(case: str, client: P2P, server: Serving) -> None:
    request, reason = BAD_OPENINGS[case]
    stream = await Stream(client, server).open()
    with pytest.raises(P2PHandlerError, match=reason):
        await stream.ask(request)
    await freed(server)
    assert await (await Stream(client, server).open()).ask(step(max_length=4)) is not None


async def test_a_bad_step_ends_its_session_and_frees_its_cache(client: P2P, server: Serving) -> None:
    stream = await Stream(client, server).open()
    await stream.ask(step(max_length=8))
    assert server.handler.cache_tokens_left == ALL_FREE - 2 * 3 * 8
    with pytest.raises(P2PHandlerError, match="opened for a batch of 1, not 2"):
        await stream.ask(step(torch.zeros(2, 1, HIDDEN)))
    await freed(server)


async def test_a_replayed_step_is_neither_computed_nor_answered(client: P2P, server: Serving) -> None:
    """As in Petals, where it has come by push before: the next new step is answered, and follows the first."""
    hidden = torch.randn(1, 3, HIDDEN)
    stream = await Stream(client, server).open()
    whole = await stream.ask(step(hidden, max_length=8, step_id="a"))
    assert whole is not None
    other = await Stream(client, server).open()
    await other.ask(step(hidden[:, :2], max_length=8, step_id="a"))
    other.send(step(hidden[:, :2], step_id="a"))
    last = await other.ask(step(hidden[:, 2:], step_id="b"))
    torch.testing.assert_close(last, whole[:, 2:])
    other.send(None)
    assert await other.answer() is None


async def test_a_client_that_vanishes_gives_its_cache_back(client: P2P, server: Serving) -> None:
    stream = await Stream(client, server).open()
    await stream.ask(step(max_length=40))
    assert server.handler.sessions_active == 1
    await stream.break_off()
    await freed(server)


async def test_a_session_that_opens_and_never_steps_is_closed(
    client: P2P, server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockserver.rpc.conversation.STEP_TIMEOUT_S", 0.05)
    stream = await Stream(client, server).open()
    await stream.ask(step(torch.zeros(1, 0, HIDDEN), max_length=40))
    with pytest.raises(P2PHandlerError, match="silent, for too long"):
        await stream.answer()
    await freed(server)


async def test_an_empty_request_ends_the_session(client: P2P, server: Serving) -> None:
    stream = await Stream(client, server).open()
    await stream.ask(step(max_length=40))
    assert await stream.end() is None
    await freed(server)


async def test_no_tokens_reserve_the_cache_only(client: P2P, server: Serving) -> None:
    stream = await Stream(client, server).open()
    nothing = await stream.ask(step(torch.zeros(1, 0, HIDDEN), max_length=40))
    assert nothing is not None
    assert nothing.shape == (1, 0, HIDDEN)
    assert server.handler.cache_tokens_left == ALL_FREE - 2 * 3 * 40
    full = await Stream(client, server).open()
    with pytest.raises(P2PHandlerError, match="the cache is full"):
        await full.ask(step(max_length=20))


async def test_a_client_may_wait_for_cache(client: P2P, server: Serving) -> None:
    first = await Stream(client, server).open()
    await first.ask(step(max_length=40))
    second = await Stream(client, server).open()
    second.send(step(max_length=20, alloc_timeout=60.0))
    waiting = asyncio.ensure_future(second.answer())
    await first.break_off()
    assert await waiting is not None


async def test_a_session_may_use_some_of_the_blocks(client: P2P, server: Serving) -> None:
    stream = await Stream(client, server).open()
    await stream.ask(step(uid="tiny.2 tiny.3", max_length=40))
    assert server.handler.cache_tokens_left == ALL_FREE - 2 * 2 * 40


async def test_a_server_that_moves_ends_its_sessions_and_serves_the_other_blocks(
    client: P2P, brief_server: Serving, tiny: tuple[Path, PreTrainedModel]
) -> None:
    stream = await Stream(client, brief_server).open()
    await stream.ask(step(max_length=4))
    brief_server.handler.set_engine(None)
    with pytest.raises(P2PHandlerError, match="no longer holds the session's blocks"):
        await stream.answer()
    loading = await Stream(client, brief_server).open()
    with pytest.raises(P2PHandlerError, match="holds no blocks at the moment"):
        await loading.ask(step(max_length=4))
    assert (await info(client, brief_server))["cache_tokens_available"] == 0
    engine = Engine(load_span(tiny[0], Span(4, 6), torch.float32), TOKENS)
    brief_server.handler.set_engine(engine)
    moved = await Stream(client, brief_server).open()
    assert await moved.ask(step(uid="tiny.4 tiny.5", max_length=4)) is not None
    assert (await info(client, brief_server))["cache_tokens_available"] == 2 * 2 * (TOKENS - 4)
    engine.stop()


async def test_a_server_that_stops_lets_open_sessions_end_and_takes_no_new_ones(client: P2P, brief_server: Serving) -> None:
    stream = await Stream(client, brief_server).open()
    await stream.ask(step(max_length=8))
    stopping = asyncio.ensure_future(brief_server.handler.stop(drain_s=60))
    await asyncio.sleep(0)
    late = await Stream(client, brief_server).open()
    with pytest.raises(P2PHandlerError, match="about to stop"):
        await late.ask(step(max_length=8))
    assert await stream.ask(step()) is not None
    await stream.end()
    await stopping
    with pytest.raises(P2PDaemonError, match=r"not supported|stream reset"):
        await info(client, brief_server)


async def test_a_server_that_stops_does_not_wait_for_ever(client: P2P, brief_server: Serving) -> None:
    stream = await Stream(client, brief_server).open()
    await stream.ask(step(max_length=8))
    await brief_server.handler.stop(drain_s=0.01)
    with pytest.raises(P2PHandlerError, match="no longer holds"):
        await stream.answer()


async def info(client: P2P, server: Serving, uid: str = "") -> dict[str, Any]:
    answer = await client.call_protobuf_handler(
        server.peer, protocol.rpc_name("rpc_info"), runtime_pb2.ExpertUID(uid=uid), runtime_pb2.ExpertInfo
    )
    read: dict[str, Any] = MSGPackSerializer.loads(answer.serialized_info)
    return read


@pytest.mark.parametrize("uid", ["tiny.0", "tiny.4", "other.1", "tiny", " ", "tiny.1 x"])
async def test_info_of_a_block_not_held_is_a_key_error_as_in_petals(uid: str, client: P2P, server: Serving) -> None:
    with pytest.raises(P2PHandlerError) as raised:
        await info(client, server, uid)
    assert str(raised.value) == f"KeyError({uid!r})"


@pytest.mark.parametrize("uid", ["tiny.1", "tiny.3"])
async def test_info_of_the_edges_of_the_span_is_given(uid: str, client: P2P, server: Serving) -> None:
    assert (await info(client, server, uid))["outputs_schema"][0].size == (None, 1, 2048, HIDDEN)


FORWARD_FAULTS: Sequence[tuple[runtime_pb2.ExpertRequest, str]] = [
    (step(uid="tiny.9"), "not served here"),
    (step(torch.zeros(1, 2, 3)), "hidden states are floats"),
    (step(active_adapter="mine"), "no adapter 'mine'"),
    (step(output_compression=(99,)), "cannot be compressed as asked"),
    (runtime_pb2.ExpertRequest(uid="tiny.1"), "at least"),
]


@pytest.mark.parametrize(("request_", "reason"), FORWARD_FAULTS)
@pytest.mark.parametrize("method", ["rpc_forward", "rpc_backward"])
async def test_a_bad_forward_or_backward_is_a_clear_error(
    method: str, request_: runtime_pb2.ExpertRequest, reason: str, client: P2P, server: Serving
) -> None:
    if method == "rpc_backward" and "uid" not in reason:
        reason = "."
    with pytest.raises(P2PHandlerError, match=reason):
        await client.call_protobuf_handler(server.peer, protocol.rpc_name(method), request_, runtime_pb2.ExpertResponse)


async def test_a_stream_in_parts_is_one_request(client: P2P, server: Serving) -> None:
    """The parts of one tensor come in several messages, as they do where it is larger than a message may be."""
    hidden = torch.randn(1, 6, HIDDEN)
    whole = await client.call_protobuf_handler(
        server.peer, protocol.rpc_name("rpc_forward"), step(hidden, torch.empty(0)), runtime_pb2.ExpertResponse
    )

    async def parts() -> AsyncIterator[runtime_pb2.ExpertRequest]:
        request = step(hidden, torch.empty(0))
        for tensor in request.tensors:
            for part in tensors.split(tensor, chunk_bytes=100):
                yield runtime_pb2.ExpertRequest(uid=request.uid, tensors=[part], metadata=request.metadata)

    answers = await client.iterate_protobuf_handler(
        server.peer, protocol.rpc_name("rpc_forward_stream"), parts(), runtime_pb2.ExpertResponse
    )
    [joined] = tensors.join([part async for answer in answers for part in answer.tensors])
    assert torch.equal(tensors.decode(joined), tensors.decode(whole.tensors[0]))


async def test_a_push_is_taken_and_ignored(client: P2P, server: Serving) -> None:
    answer = await client.call_protobuf_handler(server.peer, protocol.rpc_name("rpc_push"), step(), runtime_pb2.ExpertResponse)
    assert answer == runtime_pb2.ExpertResponse()
    assert server.handler.sessions_active == 0


async def test_reachability_is_what_a_dial_finds(client: P2P, server: Serving) -> None:
    """A peer that is there, one that is gone, and bytes that are no peer id."""
    check = ReachabilityProtocol(server.p2p, timeout_s=5)
    await check.start()
    there, gone = await loopback_peer(), await loopback_peer()
    handler = TransformerConnectionHandler(there, "tiny", None, version="1", dht_client_mode=False)
    await handler.start()
    for peer in (there, gone):
        addresses = [maddr.decapsulate(f"/p2p/{peer.peer_id}") for maddr in await peer.get_visible_maddrs()]
        await server.p2p._client.connect(peer.peer_id, addresses)
    await gone.shutdown()

    async def asked(node_id: bytes) -> bool:
        request = dht_pb2.PingRequest(peer=dht_pb2.NodeInfo(node_id=node_id))
        answer = await client.call_protobuf_handler(
            server.peer, "ReachabilityProtocol.rpc_check", request, dht_pb2.PingResponse
        )
        return bool(answer.available)

    try:
        assert await asked(there.peer_id.to_bytes())
        assert not await asked(gone.peer_id.to_bytes())
        assert not await asked(b"no peer id")
        assert not await asked(b"")
        assert await asked(client.peer_id.to_bytes()), "it serves nothing, but it answers"
    finally:
        await there.shutdown()
