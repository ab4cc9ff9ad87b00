"""The whole way: real peers on loopback, the crawl worker's own measuring, rounds, the database, and what is then shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hivemind.p2p import P2P

from blockserver.model.blocks import load_span
from coordinator.desk.oddities import doubles
from monitor import queries
from monitor.crawler import Crawler
from monitor.rates import rounds
from monitor.rates.models import Probe
from swarm.snapshot import PeerState, Server
from swarm.wire.spans import Span
from tests.blockserver.loopback import loopback_peer
from tests.monitor.seeding import SWARM, online, seed
from tests.swarm.lying import LIES, Liar, lying
from tests.swarms import model
from tests.tiny_models import save_tiny_model

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

SPAN = Span(1, 4)
LIMIT_S = 60.0


class OnLoopback(Crawler):
    """The crawl worker's crawler with a peer that knows the test's servers already."""

    def __init__(self) -> None:
        super().__init__(("unused",))
        self.peer: P2P | None = None

    def _living_node(self) -> Any:
        async def check_alive() -> None:
            await asyncio.sleep(0)

        return SimpleNamespace(p2p=self.peer, check_alive=check_alive)


@dataclass
class Swarm:
    crawler: OnLoopback
    servers: dict[str, Liar]

    def seen(self, at: float) -> list[Server]:
        """As a crawl would have stored them, each in a network of its own."""
        return [self._seen(name, liar.peer_id, at) for name, liar in self.servers.items()]

    def _seen(self, name: str, peer: str, at: float) -> Server:
        server = online(name, SPAN.start, SPAN.end, 1e6, at=at)
        assert server.visit is not None
        visit = replace(server.visit, peer_id=peer, network=f"net {name}", span=SPAN)
        return replace(server, peer_id=peer, visit=visit)


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    save_tiny_model(tmp_path)
    blocks = {n: load_span(tmp_path, Span(n, n + 1), torch.float32) for n in SPAN}
    crawler, stack = OnLoopback(), AsyncExitStack()
    servers: dict[str, Liar] = {}

    async def begin() -> None:
        crawler.peer = await loopback_peer()
        stack.push_async_callback(crawler.peer.shutdown)
        for name, lie in {"a": "honest", "b": "honest", "zeros": "zeros", "random": "random"}.items():
            servers[name] = await stack.enter_async_context(lying(crawler.peer, blocks, LIES[lie]))

    crawler._loop.run(begin(), LIMIT_S)
    yield Swarm(crawler, servers)
    crawler._loop.run(stack.aclose(), LIMIT_S)
    crawler.stop()


def test_two_rounds_tell_liars_from_honest_servers(swarm: Swarm, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": f"answers{time.monotonic_ns()}"}}
    # Everyone may be asked again at once, in the round after.
    monkeypatch.setattr("monitor.rates.choose.AGAIN_AFTER_S", 0.0)
    monkeypatch.setattr("monitor.rates.choose.IN_VAIN_AFTER_S", 0.0)
    for number in (1, 2):
        monkeypatch.setattr(rounds, "number_of", lambda now, number=number: number)
        now = time.time()
        seed(model(4, *swarm.seen(now)), at=now)
        assert rounds.run(SWARM, swarm.crawler) == 4
    published = queries.latest_snapshot(SWARM)
    assert published is not None
    standing = {name: published.answers["tiny-hf", liar.peer_id].standing.value for name, liar in swarm.servers.items()}
    assert standing == {"a": "agrees", "b": "agrees", "zeros": "wrong", "random": "differs"}
    state = {server.peer_id: server.state for server in published.snapshot.models[0].servers}
    assert {name: state[liar.peer_id] for name, liar in swarm.servers.items()} == {
        "a": PeerState.ONLINE,
        "b": PeerState.ONLINE,
        "zeros": PeerState.UNREACHABLE,
        "random": PeerState.ONLINE,
    }
    rated = set(Probe.objects.filter(tokens_per_s__isnull=False).values_list("peer_id", flat=True))
    assert swarm.servers["zeros"].peer_id not in rated and swarm.servers["a"].peer_id in rated
    odd = {double.subject: double.kind for double in doubles(published, {})}
    assert odd == {swarm.servers[name].peer_id: "answers against others'" for name in ("zeros", "random")}
