"""Steps pushed from server to server: computed once, the same results, and nothing that a stranger can spoil."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from transformers import PreTrainedModel

from blockserver.client.routes import PlainRouter
from blockserver.client.session import Patience, Session
from blockserver.client.stream import ServerStream, StepRequest
from blockserver.rpc.push import MOST_WAITING, Pushes
from blockserver.wire import protocol, tensors
from swarm.routing import Hop
from swarm.wire.spans import Span
from tests.blockserver.loopback import KnownServers, Serving, candidate, loopback_peer, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
SPANS = (Span(0, 2), Span(2, 4), Span(4, 6))
WHOLE = Span(0, 6)
SAME = {"atol": 1e-5, "rtol": 1e-5}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """Three servers which know each other's addresses, as they would from the DHT."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(serving(tiny[0], span, "tiny", client)) for span in SPANS]
        for server in servers:
            for other in servers:
                if other is not server:
                    await server.meet(other.p2p)
        yield servers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[Serving]:
    """All blocks in one server, to compare with."""
    async with serving(tiny[0], WHOLE, "tiny", client) as one:
        yield one


def session(client: P2P, servers: list[Serving], *, push: bool = True) -> Session:
    known = KnownServers([candidate(server) for server in servers])
    patience = Patience(first_pause_s=0.01)
    return Session(client, "tiny", WHOLE, known.find_route, 64, patience=patience, push=push)


def parts(*lengths: int) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(1, length, 32, generator=source) for length in lengths]


async def expected(client: P2P, whole: Serving, given: list[torch.Tensor]) -> list[torch.Tensor]:
    async with session(client, [whole], push=False) as one:
        return [await one.step(part) for part in given]


async def test_a_session_with_push_gives_the_same_and_computes_each_step_once(
    client: P2P, chain: list[Serving], whole: Serving
) -> None:
    given = parts(5, 1, 1, 1, 3, 1)
    computed = [server.engine.spent.tokens for server in chain]
    async with session(client, chain) as one:
        outputs = [await one.step(part) for part in given]
    for output, right in zip(outputs, await expected(client, whole, given), strict=True):
        torch.testing.assert_close(output, right, **SAME)
    assert [server.engine.spent.tokens - before for server, before in zip(chain, computed, strict=True)] == [12] * 3
    assert chain[0].handler.pushes.taken == 0


async def opened(client: P2P, servers: list[Serving], hidden: torch.Tensor) -> tuple[list[ServerStream], torch.Tensor]:
    """A stream to each, after a first step without push."""
    streams = [ServerStream(client, "tiny", Hop(server.peer_id, server.engine.span), 64) for server in servers]
    for stream in streams:
        hidden = await stream.step(hidden)
    return streams, hidden


def onward(streams: list[ServerStream]) -> list[protocol.NextServer]:
    return [protocol.NextServer(stream.hop.peer_id, stream.session_id, stream.hop.span) for stream in streams]


async def received(stream: ServerStream) -> torch.Tensor:
    """What the server says without being asked."""
    assert await stream.comes_within(20)
    reading, stream._reading = stream._reading, None
    assert reading is not None
    answer, refusal = reading.result()
    assert answer is not None, refusal
    return tensors.decode(answer.tensors[0])


async def test_the_last_server_answers_before_its_client_asks(client: P2P, chain: list[Serving], whole: Serving) -> None:
    first, second = parts(4, 1)
    streams, _ = await opened(client, chain, first)
    taken = [server.handler.pushes.taken for server in chain]
    await streams[0].step(second, "step-2", onward(streams[1:]))
    await received(streams[1])
    torch.testing.assert_close(await received(streams[2]), (await expected(client, whole, [first, second]))[1], **SAME)
    assert [server.handler.pushes.taken - before for server, before in zip(chain, taken, strict=True)] == [0, 1, 1]
    for stream in streams:
        await stream.close()


def pushed(session_id: str, hidden: torch.Tensor, **metadata: Any) -> runtime_pb2.ExpertRequest:
    sent = [hidden, torch.empty(0), metadata.pop("rows", torch.empty(0, dtype=torch.int64))]
    return runtime_pb2.ExpertRequest(
        uid="tiny.2 tiny.3",
        tensors=[tensors.encode(tensor) for tensor in sent],
        metadata=MSGPackSerializer.dumps(
            {"session_id": session_id, "pushed": True, "args_structure": protocol.structure(3), **metadata}
        ),
    )


async def push(peer: P2P, to: Serving, request: runtime_pb2.ExpertRequest) -> None:
    answer = await peer.call_protobuf_handler(to.peer, protocol.rpc_name("rpc_push"), request, runtime_pb2.ExpertResponse)
    assert answer == runtime_pb2.ExpertResponse(), "a stranger learns nothing from the answer"


async def test_a_push_to_a_session_that_is_not_there_is_counted_and_ignored(client: P2P, chain: list[Serving]) -> None:
    ignored = chain[1].handler.pushes.ignored
    before = ignored["unknown session"], ignored["malformed"]
    await push(client, chain[1], pushed("0" * 36, torch.zeros(1, 1, 32), step_id="a"))
    await push(client, chain[1], runtime_pb2.ExpertRequest(metadata=b"\xc1\xff"))
    assert (ignored["unknown session"], ignored["malformed"]) == (before[0] + 1, before[1] + 1)
    assert chain[1].handler.sessions_active == 0


async def test_a_stranger_cannot_push_once_the_client_has_named_a_server(
    client: P2P, chain: list[Serving], whole: Serving
) -> None:
    """Not even one that has learned the session's id."""
    given = parts(4, 1, 1, 1)
    async with session(client, chain) as one:
        outputs = [await one.step(part) for part in given[:2]]
        ignored = chain[1].handler.pushes.ignored
        before = ignored["another peer pushes"]
        stolen = one._chain[1].stream.session_id
        await push(client, chain[1], pushed(stolen, torch.ones(1, 1, 32), step_id="forged"))
        assert ignored["another peer pushes"] == before + 1
        outputs += [await one.step(part) for part in given[2:]]
    for output, right in zip(outputs, await expected(client, whole, given), strict=True):
        torch.testing.assert_close(output, right, **SAME)


@pytest.mark.parametrize(
    ("hidden", "metadata"),
    [
        (torch.zeros(1, 1, 31), {"step_id": "a"}),
        (torch.zeros(2, 1, 32), {"step_id": "a"}),
        (torch.zeros(1, 100, 32), {"step_id": "a"}),
        (torch.full((1, 1, 32), torch.nan), {"step_id": "a"}),
        (torch.zeros(1, 1, 32), {}),
        (torch.zeros(1, 1, 32), {"step_id": "a", "rows": torch.tensor([0])}),
        (torch.zeros(1, 1, 32), {"step_id": "a", "start_from_position": 5}),
        (torch.zeros(1, 1, 32), {"step_id": "a", "next_servers": "all"}),
    ],
)
async def test_a_push_that_makes_no_sense_leaves_the_session_as_it_was(
    hidden: torch.Tensor, metadata: dict[str, Any], client: P2P, chain: list[Serving]
) -> None:
    """The client's own step with the same id is computed as if nothing had come."""
    first, second = parts(4, 1)
    streams, _ = await opened(client, [chain[1]], first)
    ignored = chain[1].handler.pushes.ignored
    before = ignored["unusable"]
    await push(client, chain[1], pushed(streams[0].session_id, hidden, **dict(metadata)))
    while ignored["unusable"] == before:  # the session's own task takes it up
        await asyncio.wait_for(chain[1].engine.run(lambda _: None), 60)
    right = await chain[1].engine.forward(SPANS[1], protocol.BlockInput(torch.cat([first, second], dim=1)))
    torch.testing.assert_close(await streams[0].step(second, "a"), right[:, -1:], **SAME)
    await streams[0].close()


async def test_a_rollback_is_pushed_along_the_chain(client: P2P, chain: list[Serving], whole: Serving) -> None:
    """As drafts that were refused make it: the tokens after the new position are forgotten by all servers."""
    first, refused, second = parts(4, 3, 2)
    streams, _ = await opened(client, chain, first)
    for number, (part, position) in enumerate([(refused, None), (second, 5)]):
        request = StepRequest(protocol.BlockInput(part), f"step-{number}", position, onward(streams[1:]))
        await streams[0].ask(request)
        await received(streams[1])
        last = await received(streams[2])
    kept = [first, refused[:, :1], second]
    torch.testing.assert_close(last, (await expected(client, whole, kept))[2], **SAME)
    for stream in streams:
        await stream.close()


async def test_a_lost_server_is_replaced_in_a_session_with_push(
    client: P2P, chain: list[Serving], whole: Serving, tiny: tuple[Path, PreTrainedModel]
) -> None:
    """The servers after it keep their sessions, take the new one's pushes, and do no step twice."""
    given = parts(4, 1, 1, 1, 1)
    async with AsyncExitStack() as stack:
        doomed = await stack.enter_async_context(serving(tiny[0], SPANS[1], "tiny", client))
        await doomed.meet(chain[0].p2p)
        await chain[2].meet(doomed.p2p)
        async with session(client, [chain[0], doomed, chain[2]]) as one:
            outputs = [await one.step(part) for part in given[:3]]
            known = KnownServers([candidate(server) for server in chain])
            one._router = PlainRouter(known.find_route)
            computed = chain[2].engine.spent.tokens
            doomed.handler.set_engine(None)
            outputs += [await one.step(part) for part in given[3:]]
            assert one.recoveries == 1
            assert chain[2].engine.spent.tokens - computed == 2
    for output, right in zip(outputs, await expected(client, whole, given), strict=True):
        torch.testing.assert_close(output, right, **SAME)


async def test_what_waits_in_a_session_is_bounded_and_ids_must_be_secret() -> None:
    p2p = await loopback_peer(dht_mode="client")
    pushes = Pushes(p2p, "tiny")
    secret = "s" * 36
    with pushes.inbox(secret) as inbox, pushes.inbox("short"), pushes.inbox(secret) as second:
        for _ in range(MOST_WAITING + 1):
            pushes.receive("A", secret, runtime_pb2.ExpertRequest())
        pushes.receive("B", secret, runtime_pb2.ExpertRequest())
        pushes.receive("A", "short", runtime_pb2.ExpertRequest())
        assert dict(pushes.ignored) == {"too many": 1, "another peer pushes": 1, "unknown session": 1}
        assert (len(inbox.waiting), len(second.waiting)) == (MOST_WAITING, 0)
        for _ in range(MOST_WAITING):
            assert inbox.arrived.done()
            inbox.take()
        assert not inbox.arrived.done()
        inbox.client_was_first()
        pushes.receive("B", secret, runtime_pb2.ExpertRequest())
        assert len(inbox.waiting) == 1
    pushes.receive("A", secret, runtime_pb2.ExpertRequest())
    assert pushes.ignored["unknown session"] == 2
    await p2p.shutdown()


async def test_a_server_that_cannot_be_reached_costs_its_client_nothing(client: P2P, chain: list[Serving]) -> None:
    streams, _ = await opened(client, [chain[0]], parts(3)[0])
    for peer_id in ("no peer id", client.peer_id.to_base58(), chain[0].peer_id):
        nowhere = protocol.NextServer(peer_id, "0" * 36, Span(2, 4))
        assert (await streams[0].step(torch.zeros(1, 1, 32), f"to {peer_id}", [nowhere])).shape == (1, 1, 32)
    await streams[0].close()
