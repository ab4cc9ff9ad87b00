"""A recorded Petals client, spoken to over a real libp2p connection, gets what a real Petals server gave it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
import torch
from hivemind.compression import deserialize_torch_tensor
from hivemind.p2p import P2P, P2PHandlerError
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer

from blockserver.wire import tensors
from swarm.wire.spans import Span
from tests.blockserver.loopback import Serving, loopback_peer, serving
from tests.blockserver.recorded import Call, calls, manifest, model_folder, spans

pytestmark = pytest.mark.asyncio(loop_scope="module")
FAMILIES = ("llama", "mixtral")
ALL = [call for family in FAMILIES for call in calls(family)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def swarm() -> AsyncIterator[tuple[P2P, dict[tuple[str, Span], Serving]]]:
    """A client, and a server for each span of each recorded family."""
    async with AsyncExitStack() as stack:
        client = await loopback_peer(dht_mode="client")
        stack.push_async_callback(client.shutdown)
        servers = {
            (family, span): await stack.enter_async_context(
                serving(model_folder(family), span, manifest(family)["dht_prefix"], client)
            )
            for family in FAMILIES
            for span in spans(family)
        }
        yield client, servers


@pytest.mark.parametrize("call", [call for call in ALL if call.rpc.endswith("rpc_info")], ids=str)
async def test_rpc_info_has_the_recorded_keys_values_and_types(call: Call, swarm: Any) -> None:
    client, servers = swarm
    [request] = call.requests(runtime_pb2.ExpertUID)
    ask = client.call_protobuf_handler(servers[call.family, call.span].peer, call.rpc, request, runtime_pb2.ExpertInfo)
    if call.error is not None:
        with pytest.raises(P2PHandlerError) as raised:
            await ask
        assert repr(raised.value) == call.error
        return
    [recorded] = (MSGPackSerializer.loads(info.serialized_info) for info in call.responses(runtime_pb2.ExpertInfo))
    answer = MSGPackSerializer.loads((await ask).serialized_info)
    # Real Petals sizes its cache for each block; ours is made as large, so that even the number must agree.
    tokens_per_block = recorded["cache_tokens_available"] // (2 * len(call.span))
    assert tokens_per_block * 2 * len(call.span) == recorded["cache_tokens_available"]
    assert answer == {**recorded, "cache_tokens_available": answer["cache_tokens_available"]}
    assert list(answer) == list(recorded)
    assert type(answer["cache_tokens_available"]) is int


@pytest.mark.parametrize("call", [call for call in ALL if not call.rpc.endswith("rpc_info")], ids=str)
async def test_every_recorded_request_is_answered_alike(call: Call, swarm: Any) -> None:
    client, servers = swarm
    server = servers[call.family, call.span]
    if call.streams:
        answers = await _conversation(client, server, call)
    else:
        [request] = call.requests()
        answers = [await client.call_protobuf_handler(server.peer, call.rpc, request, runtime_pb2.ExpertResponse)]
    recorded = call.responses()
    assert len(answers) == len(recorded)
    for answer, expected in zip(answers, recorded, strict=True):
        _assert_alike(answer, expected)
    assert server.handler.cache_tokens_left == 2 * len(call.span) * 8_192
    assert server.handler.sessions_active == 0


async def _conversation(client: P2P, server: Serving, call: Call) -> list[runtime_pb2.ExpertResponse]:
    """Sends each request when the recorded client did: after the response before it."""

    async def requests() -> AsyncIterator[runtime_pb2.ExpertRequest]:
        for request in call.requests():
            yield request

    stream = await client.iterate_protobuf_handler(server.peer, call.rpc, requests(), runtime_pb2.ExpertResponse)
    return [answer async for answer in stream]


def _assert_alike(answer: runtime_pb2.ExpertResponse, expected: runtime_pb2.ExpertResponse) -> None:
    assert answer.metadata == expected.metadata
    assert len(answer.tensors) == len(expected.tensors)
    for ours, theirs in zip(answer.tensors, expected.tensors, strict=True):
        described = ("size", "dtype", "compression", "chunks", "requires_grad")
        assert [getattr(ours, name) for name in described] == [getattr(theirs, name) for name in described]
        torch.testing.assert_close(tensors.decode(ours), deserialize_torch_tensor(theirs), atol=1e-4, rtol=1e-4)
