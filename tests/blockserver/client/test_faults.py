"""Whatever a server does wrong, it is banned, another one takes over, and the output is the same. Real servers on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.pace import ENOUGH_STEPS, Limits, Pace
from blockserver.client.routes import PlainRouter
from blockserver.client.session import Patience, Session
from blockserver.client.stream import ServerStream
from blockserver.compute.engine import Engine
from blockserver.model.blocks import load_span
from blockserver.wire.protocol import BlockInput
from swarm.errors import MissingBlocks, Unreachable
from swarm.routing import Bans, Hop
from swarm.wire.spans import Span
from tests.blockserver.client.test_session import SAME, hidden
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving

WHOLE = Span(0, 6)
SPANS = (Span(0, 2), Span(2, 4), Span(2, 4), Span(4, 6))
Harm = Callable[[Serving], None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """0:2, then 2:4 twice, then 4:6, which know each other; and all blocks in one, to compare with."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(serving(tiny[0], span, "tiny", client)) for span in (*SPANS, WHOLE)]
        for one in made[:4]:
            for other in made[:4]:
                if one is not other:
                    await one.meet(other.p2p)
        yield made


@pytest.fixture
def servers(lasting: list[Serving]) -> Iterator[list[Serving]]:
    """The same, with engines of their own afterwards, whatever a test did to them."""
    before = [server.engine for server in lasting]
    yield lasting
    for server, engine in zip(lasting, before, strict=True):
        if server.handler._engine is not engine or "step" in vars(engine):
            server.engine = Engine(engine.module, 8192)
            server.handler._engine = server.engine
            engine.stop()


class Bench:
    """A session over the first of the twins, and what it should say."""

    def __init__(self, client: P2P, servers: list[Serving], limits: Limits | None = None, *, push: bool = True) -> None:
        self.servers, self.client = servers, client
        self.now = 0.0
        known = KnownServers([candidate(server, 100.0 / (1 + place)) for place, server in enumerate(servers[:4])])
        self.router = PlainRouter(known.find_route, clock=lambda: self.now, bans=Bans(first_s=10.0))
        patience = Patience(attempts=4, first_pause_s=0.01, longest_pause_s=0.05)
        self.session = Session(client, "tiny", WHOLE, self.router, 64, limits or Limits(), patience, push=push)
        self.given: list[torch.Tensor] = []
        self.outputs: list[torch.Tensor] = []

    async def steps(self, *lengths: int) -> None:
        for length in lengths:
            self.given.append(hidden(len(self.given), 1, length))
            self.outputs.append(await self.session.step(self.given[-1]))

    @property
    def victim(self) -> Serving:
        return self.servers[1]

    async def compare(self) -> None:
        """With the whole model in one server; and the first of the twins is replaced by the second, and banned."""
        assert [hop.peer_id for hop in self.session.route] == [self.servers[place].peer_id for place in (0, 2, 3)]
        assert self.router.bans.in_force(9.0) == {self.victim.peer_id}
        assert self.router.bans.in_force(11.0) == frozenset()
        whole = self.servers[4].engine
        right = await whole.forward(WHOLE, BlockInput(torch.cat(self.given, dim=1)))
        torch.testing.assert_close(torch.cat(self.outputs, dim=1), right, **SAME)


def lose_all_sessions(server: Serving) -> None:
    server.handler.set_engine(None)


def answer_not_a_number(server: Serving) -> None:
    async def step(*_: object) -> torch.Tensor:
        return torch.full((1, 1, 32), torch.nan)

    server.engine.step = step  # type: ignore[assignment]


def answer_another_shape(server: Serving) -> None:
    async def step(*_: object) -> torch.Tensor:
        return torch.zeros(1, 2, 32)

    server.engine.step = step  # type: ignore[assignment]


def hold_other_blocks(server: Serving) -> None:
    """As after a restart that its record in the DHT does not show yet."""
    facts = server.engine.facts
    server.handler.set_engine(Engine(load_span(facts.folder, Span(0, 1), torch.float32), 8192))


def be_full(server: Serving) -> None:
    server.handler.set_engine(Engine(server.engine.module, 1))


@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize("harm", [lose_all_sessions, answer_not_a_number, answer_another_shape, hold_other_blocks, be_full])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_fault_amid_a_session(harm: Harm, push: bool, client: P2P, servers: list[Serving]) -> None:
    bench = Bench(client, servers, push=push)
    async with bench.session:
        await bench.steps(5, 1, 1)
        assert bench.victim.peer_id in {hop.peer_id for hop in bench.session.route}
        harm(bench.victim)
        await bench.steps(1, 1, 1)
        assert bench.session.recoveries == 1
        await bench.compare()


@pytest.mark.parametrize("harm", [lose_all_sessions, hold_other_blocks, be_full])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_fault_at_the_opening_counts_as_well(harm: Harm, client: P2P, servers: list[Serving]) -> None:
    bench = Bench(client, servers)
    harm(bench.victim)
    async with bench.session:
        await bench.steps(5, 1)
        await bench.compare()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stall_is_noticed_by_how_long_steps_took_before(client: P2P, servers: list[Serving]) -> None:
    """Not after the 30 s that an unknown server may take; it still answers calls, so it gets some patience."""
    stuck = asyncio.Event()

    async def never(*_: object) -> torch.Tensor:
        await stuck.wait()
        raise AssertionError

    bench = Bench(client, servers, Limits(suspicious_s=0.05, busy_s=0.2))
    async with bench.session:
        await bench.steps(5, *[1] * (ENOUGH_STEPS + 1))
        bench.victim.engine.step = never  # type: ignore[method-assign]
        async with asyncio.timeout(15):
            await bench.steps(1, 1)
        await bench.compare()
    stuck.set()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_server_that_fails_again_and_again_is_banned_for_longer_and_a_success_is_remembered(
    client: P2P, servers: list[Serving]
) -> None:
    bench = Bench(client, servers)
    bans, victim = bench.router.bans, bench.victim.peer_id
    answer_not_a_number(bench.victim)
    async with bench.session:
        await bench.steps(1)
        bench.now = 11.0
    again = Bench(client, servers)
    again.router = bench.router
    again.session._router = bench.router
    async with again.session:
        await again.steps(1)
    assert bans.in_force(11.0 + 19.0) == {victim}
    bans.worked(victim)
    assert bans.failed(victim, 0.0) == 10.0


@pytest.mark.asyncio(loop_scope="module")
async def test_blocks_that_nobody_serves_any_more_are_one_sentence(client: P2P, servers: list[Serving]) -> None:
    """Though the record of their last server still stands in the DHT; and the session can go on when it is back."""
    bench = Bench(client, servers)
    bench.router.page = "http://monitor.example/m/tiny"
    async with bench.session:
        await bench.steps(2)
        last = servers[3]
        last.handler.set_engine(None)
        with pytest.raises(MissingBlocks) as caught:
            await bench.steps(1)
        said = str(caught.value)
        assert said.startswith("blocks 4–5 have no server that answers since ")
        assert said.endswith("; see http://monitor.example/m/tiny")
        assert caught.value.blocks == (4, 5)
        assert "\n" not in said
        last.engine = Engine(last.engine.module, 8192)
        last.handler.set_engine(last.engine)
        bench.given.pop()
        await bench.steps(1)
        assert bench.session.position == 3


@pytest.mark.asyncio(loop_scope="module")
async def test_a_peer_that_vanished_is_told_from_one_that_is_busy(client: P2P, servers: list[Serving]) -> None:
    """Both are silent in a step; a machine that lost power does not even answer a call."""
    stream = ServerStream(client, "tiny", Hop(servers[4].peer_id, WHOLE), 16, Limits(step_s=0.6, suspicious_s=0.05, busy_s=0.3))
    for _ in range(ENOUGH_STEPS):
        await stream.step(hidden(1, 1, 1))
    stuck = asyncio.Event()

    async def never(*_: object) -> torch.Tensor:
        await stuck.wait()
        raise AssertionError

    servers[4].engine.step = never  # type: ignore[method-assign]
    with pytest.raises(Unreachable, match=r"was silent for 0\.\d+ s in a step"):
        await stream.step(hidden(1, 1, 1))
    stream._peer = client.peer_id  # nobody answers there
    with pytest.raises(Unreachable, match=r"cannot be reached any more|does not answer a call either"):
        await stream._check_alive(0.1)
    stuck.set()
    await stream.close()


def test_limits_follow_what_was_measured_and_stay_below_the_fixed_ones() -> None:
    limits, pace = Limits(step_s=30.0, token_s=0.05, suspicious_s=1.0, busy_s=8.0), Pace()
    assert pace.suspicious_after_s(limits, 1) == pace.hopeless_after_s(limits, 1) == limits.most_s(1)
    for _ in range(20):
        pace.note(0.1)
    assert pace.suspicious_after_s(limits, 1) == 1.0
    assert pace.hopeless_after_s(limits, 1) == 8.0
    assert pace.suspicious_after_s(limits, 11) == pytest.approx(1.5)
    for _ in range(40):
        pace.note(2.0)
    assert 4.0 < pace.suspicious_after_s(limits, 1) < 6.0
    assert pace.hopeless_after_s(limits, 1) == limits.most_s(1)


def test_a_pace_that_varies_gives_more_time_than_one_that_does_not() -> None:
    steady, varying = Pace(), Pace()
    for step in range(40):
        steady.note(1.0)
        varying.note(0.5 if step % 2 else 1.5)
    assert varying.slow_s > 1.5 * steady.slow_s
