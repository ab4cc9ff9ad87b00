"""`sepal serve` as a process of its own: what it says, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.stream import ServerStream
from blockserver.config import ServeConfig
from blockserver.serving.life import OFFLINE_TIMEOUT_S
from blockserver.serving.presence import GIVE_UP_HANDLER_S
from swarm.dht.node import LOOPBACK, Node
from swarm.routing import Hop
from swarm.snapshot import PeerState
from swarm.wire.spans import Span
from tests.blockserver.living import PREFIX, online, until
from tests.loopback import nodes, reader_of

pytestmark = pytest.mark.slow

SPAN = Span(0, 4)
PATIENCE_S = 90.0
"""Only who fails waits so long."""


@contextlib.asynccontextmanager
async def process(boot: Node, folder: Path, tmp_path: Path, *more: str) -> AsyncIterator[Process]:
    """Petals' spelling of the flags, as people have it in their scripts."""
    words = ["serve", str(folder), "--initial_peers", *await boot.addresses(), "--host_maddrs", *LOOPBACK, "--num_blocks", "4"]
    words += ["--no-nat-port-map", "--no-relay", "--torch_dtype", "float32", "--state-dir", str(tmp_path), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "blockserver.cli", *words]
    started = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=environment)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


@contextlib.asynccontextmanager
async def open_session(reader: Node, peer_id: str) -> AsyncIterator[None]:
    """One token deep, and then silent."""
    stream = ServerStream(reader.p2p, PREFIX, Hop(peer_id, SPAN), 8)
    await stream.step(torch.zeros(1, 1, 32))
    try:
        yield
    finally:
        await stream.close()


async def test_a_server_says_what_it_found_and_leaves_in_order(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader, process(boot, tiny[0], tmp_path) as started:
        (server,) = (await until(reader, online(SPAN), within_s=PATIENCE_S)).servers
        async with open_session(reader, server.peer_id):
            started.send_signal(signal.SIGTERM)
            left = await until(reader, lambda seen: seen.servers[0].state is PeerState.LEAVING)
            assert started.returncode is None, "OFFLINE is announced before the session is let run out"
            assert left.servers[0].peer_id == server.peer_id
        output, errors = await asyncio.wait_for(started.communicate(), PATIENCE_S)
    assert (started.returncode, output) == (0, b"")
    text = errors.decode()
    for said in ("devices: cpu (", "6 blocks of", "takes 4 of them", f"peer {server.peer_id} listens on /ip4/127.0.0.1/tcp/",
                 "serving blocks 0–3, decided by this server: blocks 0–3 have no server", "reachable", "ONLINE with blocks 0–3",
                 "waiting for 1 sessions"):  # fmt: skip
        assert said in text, text
    assert text.index("devices:") < text.index("takes 4 of them") < text.index("listens on") < text.index("decided by")
    assert "Traceback" not in text
    assert "\x1b[" not in text


def test_leaving_in_order_ends_within_what_an_operator_and_a_service_manager_are_promised() -> None:
    (drain,) = [field.default for field in fields(ServeConfig) if field.name == "drain_s"]
    # For what still runs, for the last announcement, for sessions, for the handler.
    assert 2 * OFFLINE_TIMEOUT_S + drain + GIVE_UP_HANDLER_S <= 30.0


async def test_a_second_signal_ends_it_at_once(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader, process(boot, tiny[0], tmp_path) as started:
        (server,) = (await until(reader, online(SPAN), within_s=PATIENCE_S)).servers
        async with open_session(reader, server.peer_id):
            started.send_signal(signal.SIGINT)
            await until(reader, lambda seen: seen.servers[0].state is PeerState.LEAVING)
            assert started.returncode is None
            started.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(started.wait(), PATIENCE_S) == 130
