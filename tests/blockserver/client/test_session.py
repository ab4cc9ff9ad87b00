"""Sessions over real servers on loopback: batches, beams, deep prompts, rollbacks, parts of a model; and all of it again when
a server is lost in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.notes import Notes
from blockserver.client.routes import PlainRouter
from blockserver.client.session import Patience, Session
from blockserver.compute.engine import Engine
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Candidate
from swarm.wire.spans import Span
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHOLE = Span(0, 6)
SAME = {"atol": 1e-5, "rtol": 1e-5}
QUICK = Patience(attempts=4, first_pause_s=0.01, longest_pause_s=0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """All blocks in one, which tests compare with; then 0:2, 2:4, 2:4 and 4:6, which know each other."""
    async with AsyncExitStack() as stack:
        spans = (WHOLE, Span(0, 2), Span(2, 4), Span(2, 4), Span(4, 6))
        made = [await stack.enter_async_context(serving(tiny[0], span, "tiny", client)) for span in spans]
        for one in made[1:]:
            for other in made[1:]:
                if one is not other:
                    await one.meet(other.p2p)
        yield made


def session(client: P2P, servers: list[Serving], span: Span = WHOLE, *, push: bool = True) -> Session:
    """Those that come first are preferred."""
    known = KnownServers([candidate(server, 100.0 / (1 + place)) for place, server in enumerate(servers)])
    return Session(client, "tiny", span, known.find_route, 64, patience=QUICK, push=push)


def lose(server: Serving) -> None:
    """It ends its sessions; it can be used again afterwards."""
    engine = server.engine
    server.engine = Engine(engine.module, 8192)
    server.handler.set_engine(server.engine)


def hidden(seed: int, batch: int, tokens: int) -> torch.Tensor:
    return torch.randn(batch, tokens, 32, generator=torch.Generator().manual_seed(seed))


async def beam_search(one: Session, lost: Serving | None) -> list[torch.Tensor]:
    """Prompts, reorderings, a rollback into a step, and more, with a server lost where each of them is to be replayed."""
    prompts = 0.5 * torch.randn(len(one.span), 3, 2, 32, generator=torch.Generator().manual_seed(9))
    outputs = [await one.step(hidden(1, 3, 5), prompts=prompts)]
    outputs.append(await one.step(hidden(2, 3, 1), hypo_ids=torch.tensor([0, 0, 2])))
    outputs.append(await one.step(hidden(3, 3, 4), hypo_ids=torch.tensor([2, 1, 1])))
    one.rollback(8)
    if lost:
        lose(lost)
    outputs.append(await one.step(hidden(4, 3, 2), hypo_ids=torch.tensor([1, 0, 2])))
    outputs.append(await one.step(hidden(5, 3, 1)))
    one.rollback(1)
    if lost:
        lose(lost)
    outputs.append(await one.step(hidden(6, 3, 1)))
    assert one.position == 2
    return outputs


@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize("victim", [None, 1, 4])
async def test_beams_prompts_and_rollbacks_are_right_and_survive_a_loss(
    victim: int | None, push: bool, client: P2P, servers: list[Serving]
) -> None:
    async with session(client, servers[:1]) as plain:
        expected = await beam_search(plain, None)
    chain = [servers[1], servers[2], servers[4]]
    async with session(client, chain, push=push) as one:
        outputs = await beam_search(one, servers[victim] if victim else None)
        # A server that has ended the session by the time of the next step is just called again.
        assert one.recoveries <= (2 if victim else 0)
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, right, **SAME)


async def test_a_batch_survives_the_loss_of_a_server_whose_twin_takes_over(client: P2P, servers: list[Serving]) -> None:
    async with session(client, servers[:1]) as plain:
        expected = [await plain.step(hidden(seed, 4, tokens)) for seed, tokens in enumerate((6, 1, 1))]
    async with session(client, servers[1:]) as one:
        outputs = [await one.step(hidden(seed, 4, tokens)) for seed, tokens in enumerate((6, 1))]
        lost = next(server for server in servers if server.peer_id == one.route[1].peer_id)
        lost.handler.set_engine(None)
        outputs.append(await one.step(hidden(2, 4, 1)))
        assert one.recoveries == 1
        assert one.route[1].peer_id != lost.peer_id
    lost.engine = Engine(lost.engine.module, 8192)
    lost.handler.set_engine(lost.engine)
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, right, **SAME)


async def test_what_is_seen_of_servers_is_taken_down(client: P2P, servers: list[Serving]) -> None:
    async with session(client, servers[1:]) as one:
        one.notes = Notes()
        await one.step(hidden(0, 1, 40))
        first, second, third = one.route
        lost = next(server for server in servers if server.peer_id == second.peer_id)
        lost.handler.set_engine(None)
        await one.step(hidden(1, 1, 1))
        told = {server.peer_id: server for server in one.notes.take()}
        instead = one.route[1]
    lost.engine = Engine(lost.engine.module, 8192)
    lost.handler.set_engine(lost.engine)
    assert {peer: (server.requests, server.failures) for peer, server in told.items()} == {
        first.peer_id: (2, 0),
        second.peer_id: (2, 1),
        instead.peer_id: (1, 0),
        third.peer_id: (2, 0),
    }
    assert told[second.peer_id].last_error and not told[first.peer_id].last_error
    assert not any(server.tokens_per_s for server in told.values()), "nobody knows how far these servers are"


async def test_a_long_pass_is_timed_where_the_way_is_known(client: P2P, servers: list[Serving]) -> None:
    known = {server.peer_id: replace(candidate(server), round_trip_s=0.0) for server in servers[1:]}

    class Near(PlainRouter):
        def about(self, peer_id: str) -> Candidate | None:
            return known[peer_id]

    notes = Notes()
    router = Near(KnownServers(list(known.values())).find_route)
    async with Session(client, "tiny", WHOLE, router, 64, patience=QUICK, notes=notes) as one:
        await one.step(hidden(0, 1, 40))
        passes = {peer: server.longest for peer, server in notes._servers.items()}
        assert set(passes) == {hop.peer_id for hop in one.route}
    assert all(found and (found.tokens, found.blocks, found.served) == (40, 2, 2) for found in passes.values())


async def test_a_session_that_a_server_ended_while_it_was_idle_goes_on_there(client: P2P, servers: list[Serving]) -> None:
    """No fault: others needed the cache. Nobody is banned for it."""
    async with session(client, servers[:1]) as plain:
        expected = [await plain.step(hidden(1, 1, 3)), await plain.step(hidden(2, 1, 1))]
    async with session(client, servers[1:]) as one:
        outputs = [await one.step(hidden(1, 1, 3))]
        route = one.route
        lost = next(server for server in servers if server.peer_id == route[1].peer_id)
        lose(lost)
        await asyncio.wait_for(one._chain[1].stream._reading, 60)
        outputs.append(await one.step(hidden(2, 1, 1)))
        assert (one.recoveries, one.route) == (0, route)
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, right, **SAME)


async def test_an_empty_session_may_go_on_with_another_batch(client: P2P, servers: list[Serving]) -> None:
    async with session(client, servers[:1]) as plain:
        expected = await plain.step(hidden(2, 3, 2))
    async with session(client, servers[1:]) as one:
        await one.step(hidden(1, 1, 3))
        one.rollback(0)
        torch.testing.assert_close(await one.step(hidden(2, 3, 2)), expected, **SAME)


async def test_a_session_may_be_over_a_part_of_the_blocks(client: P2P, servers: list[Serving]) -> None:
    async with session(client, servers[:1], Span(1, 3)) as plain:
        expected = await plain.step(hidden(1, 1, 4))
    async with session(client, servers[1:], Span(1, 3)) as one:
        torch.testing.assert_close(await one.step(hidden(1, 1, 4)), expected, **SAME)
        assert [hop.span for hop in one.route] == [Span(1, 2), Span(2, 3)]


async def test_only_allowed_servers_are_used_and_blocked_ones_never(client: P2P, servers: list[Serving]) -> None:
    wanted = {servers[1].peer_id, servers[3].peer_id, servers[4].peer_id}
    async with session(client, servers) as one:
        one.allowed = frozenset(wanted)
        await one.step(hidden(1, 1, 2))
        assert {hop.peer_id for hop in one.route} == wanted
    async with session(client, servers) as one:
        one.blocked = frozenset({servers[0].peer_id, servers[4].peer_id})
        with pytest.raises(MissingBlocks, match="blocks 4–5"):
            await one.step(hidden(1, 1, 2))


async def test_a_step_that_is_cancelled_leaves_the_session_as_it_was(
    client: P2P, servers: list[Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody stops an answer and then asks something else."""
    async with session(client, servers[:1]) as plain:
        expected = [await plain.step(hidden(1, 2, 3)), await plain.step(hidden(3, 2, 1))]
    async with session(client, servers[1:]) as one:
        outputs = [await one.step(hidden(1, 2, 3))]
        reached, never = asyncio.Event(), asyncio.Event()

        async def stuck(*_: object) -> torch.Tensor:
            reached.set()
            await never.wait()
            raise AssertionError

        with monkeypatch.context() as patch:
            last = next(server for server in servers if server.peer_id == one.route[-1].peer_id)
            patch.setattr(last.engine, "step", stuck)
            step = asyncio.create_task(one.step(hidden(2, 2, 1), hypo_ids=torch.tensor([1, 1])))
            await asyncio.wait_for(reached.wait(), 60)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
        assert one.position == 3
        outputs.append(await one.step(hidden(3, 2, 1)))
        assert one.recoveries == 0
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, right, **SAME)


async def test_a_step_that_failed_may_be_tried_again(client: P2P, servers: list[Serving]) -> None:
    async with session(client, servers[:1]) as plain:
        expected = [await plain.step(hidden(1, 1, 3)), await plain.step(hidden(2, 1, 1))]
    chain = [servers[1], servers[2], servers[4]]
    async with session(client, chain) as one:
        outputs = [await one.step(hidden(1, 1, 3))]
        servers[4].handler.set_engine(None)
        with pytest.raises(RemoteError):
            await one.step(hidden(2, 1, 1))
        servers[4].engine = Engine(servers[4].engine.module, 8192)
        servers[4].handler.set_engine(servers[4].engine)
        outputs.append(await one.step(hidden(2, 1, 1)))
    for output, right in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output, right, **SAME)


async def test_what_the_caller_does_wrong_is_said_plainly(client: P2P, servers: list[Serving]) -> None:
    async with session(client, servers[:1]) as one:
        await one.step(hidden(1, 2, 2))
        for wrong, said in [
            ({"hidden": hidden(1, 3, 1)}, "batch of 2, not 3"),
            ({"hidden": hidden(1, 2, 0)}, "at least one token"),
            ({"hidden": hidden(1, 2, 1), "hypo_ids": torch.tensor([0, 2])}, "hypo_ids name a row"),
            ({"hidden": hidden(1, 2, 1), "prompts": torch.zeros(6, 2, 2, 32)}, "up to 1"),
        ]:
            with pytest.raises(LocalError, match=said):
                await one.step(wrong.pop("hidden"), **wrong)
        with pytest.raises(LocalError, match="cannot go back to position 3"):
            one.rollback(3)
        assert one.position == 2
