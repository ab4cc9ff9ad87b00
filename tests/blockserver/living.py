"""Whole block servers inside a test's process, and what a reader of the DHT and a caller see of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from hivemind.p2p import PeerID
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer

from blockserver.client.discovery import RouteFinder
from blockserver.config import ServeConfig
from blockserver.serving.server import serve
from swarm.dht.node import LOOPBACK, Node
from swarm.dht.probe import INFO_RPC
from swarm.snapshot import Model, PeerState
from swarm.wire.spans import Span

PREFIX = "tiny"
PATIENCE_S = 90.0
"""Only who fails waits so long: on a busy machine all of this takes ten times longer than on an idle one."""


async def config(boot: Node, folder: Path, **more: Any) -> ServeConfig:
    """Quick and on loopback."""
    given: dict[str, Any] = {
        "model": folder,
        "initial_peers": await boot.addresses(),
        "listen": LOOPBACK,
        "port_mapping": False,
        "relay": False,
        "dtype": "float32",
        "hint_interval_s": 0.1,
        "drain_s": 1.0,
        **more,
    }
    return ServeConfig(**given)


@contextlib.asynccontextmanager
async def serving(made: ServeConfig) -> AsyncIterator[asyncio.Event]:
    """Runs a server until the block ends or the event is set."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve(made, stop))
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE_S)


async def until(
    reader: Node, holds: Callable[[Model], bool], within_s: float = PATIENCE_S, prefix: str = PREFIX, num_blocks: int = 6
) -> Model:
    """The model as soon as it is as wanted. The DHT tells nobody of changes, so it is asked."""
    finder = RouteFinder(reader, prefix, num_blocks)
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        seen = await finder.view()
        if holds(seen):
            return seen
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {within_s} s; last seen: {seen}")


def online(*spans: Span) -> Callable[[Model], bool]:
    return lambda seen: sorted(s.span for s in seen.servers if s.state is PeerState.ONLINE) == sorted(spans)


async def info(
    reader: Node, peer_id: str, holds: Callable[[dict[str, Any]], bool] = lambda said: True, within_s: float = PATIENCE_S
) -> dict[str, Any]:
    """What the server says of itself, as soon as it is as wanted."""
    deadline = time.monotonic() + within_s
    while not holds(said := await _info(reader, peer_id)):
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.05)
    return said


async def _info(reader: Node, peer_id: str) -> dict[str, Any]:
    call = reader.p2p.call_protobuf_handler(
        PeerID.from_base58(peer_id), INFO_RPC, runtime_pb2.ExpertUID(), runtime_pb2.ExpertInfo
    )
    answer: dict[str, Any] = MSGPackSerializer.loads((await asyncio.wait_for(call, PATIENCE_S)).serialized_info)
    return answer


async def eventually(holds: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.02)
