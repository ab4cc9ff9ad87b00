"""A server whose p2pd dies or freezes, or whose bootstrap peer goes and comes back, is found again without being restarted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from transformers import PreTrainedModel

from blockserver.serving.bootstrap import run_bootstrap
from blockserver.serving.presence import lasting_identity, with_present_port
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.dht.probe import visit
from swarm.errors import Unreachable
from swarm.snapshot import Model, PeerState
from swarm.wire.spans import Span
from tests.blockserver.living import PATIENCE_S, PREFIX, config, eventually, online, serving, until
from tests.loopback import nodes, reader_of

SPAN = Span(0, 4)


@pytest.fixture
def folder(tiny: tuple[Path, PreTrainedModel]) -> Path:
    return tiny[0]


def daemon_of(identity: Path) -> psutil.Process:
    """The p2pd that runs with this identity."""
    children = psutil.Process().children(recursive=True)
    return next(child for child in children if any(str(identity) in word for word in child.cmdline()))


async def answers(reader: Node, peer_id: str) -> bool:
    return (await visit(reader.p2p, peer_id, PREFIX, SPAN)).answered


async def until_it_answers(reader: Node, peer_id: str, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not await answers(reader, peer_id):
        assert time.monotonic() < deadline, "it never answered again"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "blow", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)], ids=["killed", "frozen"]
)
async def test_a_p2pd_that_is_lost_is_replaced_with_the_same_identity_and_blocks(
    folder: Path, tmp_path: Path, blow: signal.Signals
) -> None:
    key = tmp_path / "server.id"
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        made = await config(boot, folder, num_blocks=4, identity_path=key, alive_interval_s=0.2, update_period_s=0.5)
        async with serving(made):
            (server,) = (await until(reader, online(SPAN))).servers
            lost = daemon_of(key)
            lost.send_signal(blow)
            await eventually(lambda: not lost.is_running() or lost.status() == psutil.STATUS_ZOMBIE)
            await until_it_answers(reader, server.peer_id)
            later = server.expires_at + 1.0
            again = await until(reader, lambda seen: bool(seen.servers) and seen.servers[0].expires_at > later)
            assert [(one.peer_id, one.span, one.state) for one in again.servers] == [(server.peer_id, SPAN, PeerState.ONLINE)]
            assert daemon_of(key).pid != lost.pid


@contextlib.asynccontextmanager
async def bootstrap(identity: Path, port: int = 0) -> AsyncIterator[Node]:
    node = await start_node(NodeConfig(listen=(f"/ip4/127.0.0.1/tcp/{port}",), identity_path=identity))
    try:
        yield node
    finally:
        await node.stop()


async def test_a_bootstrap_peer_that_comes_back_empty_is_told_again(folder: Path, tmp_path: Path) -> None:
    """It was the only other peer, so the server's routing table was empty meanwhile; sessions would have gone on."""
    key = tmp_path / "boot.id"
    async with contextlib.AsyncExitStack() as stack:
        async with bootstrap(key) as boot:
            port = int((await boot.addresses())[0].split("/")[4])
            made = await config(boot, folder, num_blocks=4, alive_interval_s=0.2, update_period_s=60.0)
            await stack.enter_async_context(serving(made))
            async with reader_of(boot) as reader:
                (server,) = (await until(reader, online(SPAN))).servers
        async with bootstrap(key, port) as boot, reader_of(boot) as reader:

            def is_back(seen: Model) -> bool:
                return [(one.peer_id, one.state) for one in seen.servers] == [(server.peer_id, PeerState.ONLINE)]

            await until(reader, is_back)
            await until_it_answers(reader, server.peer_id)


async def test_a_lost_p2pd_enters_again_through_whoever_was_met(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bootstrap peer is gone for good; another peer of the swarm is still there."""
    met: set[str] = set()
    look = Node.connected_addresses

    async def noting(node: Node) -> tuple[str, ...]:
        addresses = await look(node)
        met.update(addresses)
        return addresses

    monkeypatch.setattr(Node, "connected_addresses", noting)
    key = tmp_path / "server.id"
    async with contextlib.AsyncExitStack() as stack:
        async with bootstrap(tmp_path / "boot.id") as boot:
            other = await start_node(NodeConfig(initial_peers=await boot.addresses()))
            stack.push_async_callback(other.stop)
            made = await config(boot, folder, num_blocks=4, identity_path=key, alive_interval_s=0.2, update_period_s=0.5)
            await stack.enter_async_context(serving(made))
            reader = await stack.enter_async_context(reader_of(other))
            (server,) = (await until(reader, online(SPAN))).servers
            await eventually(lambda: server.peer_id in other.known_peers())
            await eventually(lambda: any(other.peer_id in address for address in met))
        daemon_of(key).kill()
        later = server.expires_at + 1.0
        await until(reader, lambda seen: bool(seen.servers) and seen.servers[0].expires_at > later)
        await until_it_answers(reader, server.peer_id)


async def test_without_an_identity_file_one_lasts_for_the_run(tmp_path: Path) -> None:
    async with lasting_identity(NodeConfig()) as made:
        assert made.identity_path is not None
        first = await start_node(made)
        same = await with_present_port(made, first)
        address = (await first.addresses())[0]
        await first.stop()
        second = await start_node(same)
        assert await second.addresses() == (address,)
        await second.stop()
    assert not made.identity_path.exists()
    async with lasting_identity(NodeConfig(identity_path=tmp_path / "own")) as given:
        assert given.identity_path == tmp_path / "own"


async def test_a_bootstrap_peer_outlives_its_p2pd(tmp_path: Path) -> None:
    key, ready, stop = tmp_path / "boot.id", tmp_path / "ready.json", asyncio.Event()
    running = asyncio.create_task(run_bootstrap(NodeConfig(identity_path=key), ready, stop, interval_s=0.1))
    await eventually(ready.exists)
    (address,) = json.loads(ready.read_text())["addresses"]
    daemon_of(key).kill()
    newcomer = await _entered(address)
    assert newcomer.known_peers() == {address.rsplit("/", 1)[1]}
    await newcomer.stop()
    stop.set()
    await asyncio.wait_for(running, PATIENCE_S)


async def _entered(address: str, within_s: float = PATIENCE_S) -> Node:
    deadline = time.monotonic() + within_s
    while True:
        try:
            return await start_node(NodeConfig(initial_peers=(address,), client_mode=True))
        except Unreachable:
            assert time.monotonic() < deadline
