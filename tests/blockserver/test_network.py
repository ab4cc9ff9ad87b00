"""Rates and reachability, asked of real peers on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hivemind.p2p import P2P, P2PContext
from hivemind.proto import dht_pb2
from transformers import PreTrainedModel

from blockserver.rpc.reachability import ReachabilityProtocol
from blockserver.serving.measured import MeasuredRates
from blockserver.serving.network_rate import PAYLOADS, network_tokens_per_s
from blockserver.serving.reachability_check import Verdict, ask_peers, ask_site, check
from swarm.wire.spans import Span
from tests.blockserver.coordinators import coordinator
from tests.blockserver.living import config, info, online, until
from tests.blockserver.living import serving as living
from tests.blockserver.loopback import loopback_peer, serving
from tests.loopback import nodes, reader_of
from tests.swarms import peer_id

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_network_is_measured_by_payloads_to_servers(tiny: tuple[Path, PreTrainedModel], client: P2P) -> None:
    async with serving(tiny[0], Span(0, 2), "tiny", client) as server:
        rate = await network_tokens_per_s(client, [(server.peer_id, "tiny.0")], bytes_per_token=128)
    assert rate is not None
    # A line that carries no megabyte in eight seconds would have given the smaller payload's rate.
    assert rate * 128 > PAYLOADS[0] / 8


async def test_a_peer_that_serves_nothing_or_is_gone_gives_no_rate(client: P2P) -> None:
    bare = await loopback_peer()
    try:
        peers = [(str(bare.peer_id.to_base58()), "tiny.0"), (peer_id("nobody"), "tiny.0")]
        assert await network_tokens_per_s(client, peers, bytes_per_token=128) is None
    finally:
        await bare.shutdown()
    assert await network_tokens_per_s(client, [], bytes_per_token=128) is None


@pytest.mark.parametrize(
    ("given", "reachable"),
    [
        (Verdict(None), True),
        (Verdict(True), True),
        (Verdict(False), False),
        (Verdict(True, "timeout"), False),
        (Verdict(None, "timeout"), False),
    ],
)
async def test_a_verdict(given: Verdict, reachable: bool) -> None:
    assert given.reachable is reachable
    assert given.in_words()


@pytest.mark.parametrize(("able", "unable", "direct"), [(0, 0, None), (1, 0, True), (1, 1, True), (0, 1, False), (1, 2, False)])
async def test_half_of_the_peers_decide(able: int, unable: int, direct: bool | None) -> None:
    class Able(ReachabilityProtocol):
        answer = True

        async def rpc_check(self, request: dht_pb2.PingRequest, context: P2PContext) -> dht_pb2.PingResponse:
            asked.append(request.peer.node_id)
            return dht_pb2.PingResponse(available=self.answer)

    class Unable(Able):
        answer = False

    Able.__name__ = Unable.__name__ = "ReachabilityProtocol"
    asked: list[bytes] = []
    async with nodes(2 + able + unable) as (_, me, *others):
        for position, other in enumerate(others):
            await (Able if position < able else Unable)(other.p2p).start()
            await other.dht.protocol.call_ping(me.p2p.peer_id)
        assert (await check(me, None)).direct is direct
        assert set(asked) <= {me.p2p.peer_id.to_bytes()}
        assert len(await ask_peers(me)) == able + unable


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        ({"success": True, "message": "reached", "your_ip": "::1"}, None),
        ({"success": False, "message": "timeout", "your_ip": "::1"}, "timeout"),
        ({"success": False}, "no reason given"),
        (503, None),
        (b"<html>", None),
        ([], None),
        (404, None),
    ],
)
async def test_the_site_is_believed_where_it_can_say(answer: Any, refusal: str | None) -> None:
    with coordinator() as told:
        told.answers[f"/api/v1/is_reachable/{peer_id('me')}"] = answer
        assert await ask_site(told.url, peer_id("me")) == refusal


async def test_nobody_to_ask_is_no_refusal() -> None:
    assert await ask_site(None, peer_id("me")) is None
    assert await ask_site("http://127.0.0.1:9", peer_id("me")) is None


async def test_a_second_server_announces_what_the_network_carries_and_keeps_it(
    tiny: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        async with living(await config(boot, tiny[0], num_blocks=3)):
            await until(reader, online(Span(0, 3)))
            async with living(await config(boot, tiny[0], num_blocks=3, state_dir=tmp_path)):
                seen = await until(reader, online(Span(0, 3), Span(3, 6)))
                (second,) = [server for server in seen.servers if server.span == Span(3, 6)]
                rate = (await info(reader, second.peer_id))["network_rps"]
    assert rate > 0
    assert second.record.network_rps == rate
    assert (tmp_path / "throughput.json").exists()
    assert MeasuredRates(tmp_path).network(128, 0.0) is None


async def test_an_operators_figure_is_announced_as_it_is(tiny: tuple[Path, PreTrainedModel]) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        async with living(await config(boot, tiny[0], num_blocks=6, throughput=12.5)):
            (server,) = (await until(reader, online(Span(0, 6)))).servers
            assert server.record.throughput == 12.5
