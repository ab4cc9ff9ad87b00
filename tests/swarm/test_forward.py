"""A probe forward against real servers on loopback: it measures, it leaves busy servers alone, and nonsense is no rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hivemind.p2p import P2PContext, ServicerBase
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from hypothesis import given
from hypothesis import strategies as st

from swarm.dht.forward import Why, measure
from swarm.throughput import rate_of
from swarm.wire.schema import hidden_size
from swarm.wire.spans import Span
from tests.blockserver.loopback import loopback_peer, serving
from tests.tiny_models import save_tiny_model

PREFIX = "tiny-hf"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder)
    return folder


async def test_a_server_that_does_nothing_else_is_measured(tiny: Path) -> None:
    client = await loopback_peer()
    try:
        async with serving(tiny, Span(1, 4), PREFIX, client) as server:
            found = await measure(client, server.peer_id, PREFIX, Span(1, 4))
            assert found.timing is not None, found.why
            assert (found.timing.blocks, found.timing.tokens) == (3, 128)
            assert found.cache_tokens == server.handler.cache_tokens_left
            assert 0 < rate_of(found.timing) < 1e9
            fewer = await measure(client, server.peer_id, PREFIX, Span(1, 4), idle_cache_tokens=found.cache_tokens + 1)
            assert (fewer.timing, fewer.why) == (None, Why.BUSY), "less cache free than was seen: it has sessions"
            absent = await measure(client, server.peer_id, PREFIX, Span(0, 4))
            assert (absent.timing, absent.why) == (None, Why.NO_ANSWER), "it does not hold block 0"
    finally:
        await client.shutdown()


class TransformerConnectionHandler(ServicerBase):
    """Says what it is told to."""

    def __init__(self, info: dict[str, Any], answer: runtime_pb2.Tensor) -> None:
        self.info, self.answer, self.passes = info, answer, 0

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        return runtime_pb2.ExpertInfo(serialized_info=MSGPackSerializer.dumps(self.info))

    async def rpc_forward(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        self.passes += 1
        return runtime_pb2.ExpertResponse(tensors=[self.answer])


SCHEMA = {"forward_schema": (({"size": [None, 1, 2048, 16]},), {})}


@pytest.mark.parametrize(
    ("info", "why", "passes"),
    [
        ({**SCHEMA, "sessions_active": 2}, Why.BUSY, 0),
        ({"cache_tokens_available": 5}, Why.NOT_SAID, 0),
        ({**SCHEMA, "sessions_active": 0}, Why.WRONG, 1),
    ],
)
async def test_who_is_busy_is_not_asked_and_a_wrong_answer_is_no_rate(info: dict[str, Any], why: Why, passes: int) -> None:
    client, peer = await loopback_peer(), await loopback_peer()
    servicer = TransformerConnectionHandler(info, runtime_pb2.Tensor(buffer=b"12", size=[1, 1, 1], dtype="float16"))
    try:
        await servicer.add_p2p_handlers(peer)
        peer_id = peer.peer_id.to_base58()
        addresses = [address.decapsulate(f"/p2p/{peer_id}") for address in await peer.get_visible_maddrs()]
        await client._client.connect(peer.peer_id, addresses)
        found = await measure(client, peer_id, PREFIX, Span(0, 2))
        assert (found.timing, found.why, servicer.passes) == (None, why, passes)
        if why is Why.BUSY:
            found = await measure(client, peer_id, PREFIX, Span(0, 2), even_if_busy=True)
            assert (found.why, servicer.passes) == (Why.WRONG, 1), "asked all the same"
    finally:
        await client.shutdown()
        await peer.shutdown()


def test_a_real_petals_server_says_how_wide_its_hidden_states_are() -> None:
    recorded = Path(__file__).parent.parent / "data" / "petals" / "llama"
    calls = json.loads((recorded / "manifest.json").read_text())["calls"]
    files = [name for call in calls if call["rpc"].endswith("rpc_info") for kind, name in call["events"] if kind == "response"]
    answers = [runtime_pb2.ExpertInfo.FromString((recorded / name).read_bytes()).serialized_info for name in files]
    told = {hidden_size(answer) for answer in answers if b"forward_schema" in answer}
    assert told == {64}, "tiny-llama's"
    assert {hidden_size(answer) for answer in answers if b"forward_schema" not in answer} <= {None}


@given(st.binary(max_size=300))
def test_whatever_bytes_come_the_width_is_a_number_or_not_known(data: bytes) -> None:
    size = hidden_size(data)
    assert size is None or 1 <= size <= 65_536


@pytest.mark.parametrize("last", [0, -1, 10**9, True, None, "64", 1.5])
def test_a_width_out_of_range_is_not_known(last: object) -> None:
    assert hidden_size(MSGPackSerializer.dumps({"forward_schema": [[{"size": [None, last]}]]})) is None
