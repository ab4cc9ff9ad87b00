"""From settings to a server that lives in a swarm: checks what can be checked before anything is announced, says what it
found, enters the swarm, and hands over to `life`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from importlib.metadata import version

from blockserver.config import ServeConfig
from blockserver.devices import find_devices
from blockserver.serving.hint_client import HintClient
from blockserver.serving.identity import read_signer
from blockserver.serving.life import BlockServer
from blockserver.serving.metrics import MetricsPage
from blockserver.serving.presence import lasting_identity, with_present_port
from blockserver.serving.repertoire import repertoire_of
from blockserver.serving.systemd import Systemd
from swarm.dht.node import NodeConfig, start_node
from swarm.wire.records import OURS

log = logging.getLogger(__name__)

VERSION = f"{OURS}{version('sepal')}"


async def serve(config: ServeConfig, stop: asyncio.Event) -> None:
    """Serves until `stop` is set. Raises LocalError or RemoteError where it cannot begin."""
    raise_open_files_limit()
    log.info("devices: %s", "; ".join(map(str, find_devices())))
    repertoire = repertoire_of(config)
    async with contextlib.AsyncExitStack() as stack:
        wanted = await stack.enter_async_context(lasting_identity(node_config(config)))
        node = await start_node(wanted)
        log.info("peer %s listens on %s", node.peer_id, ", ".join(await node.addresses()))
        hints = await stack.enter_async_context(_client(config.coordinator, wanted)) if config.coordinator else None
        server = BlockServer(config, repertoire, await with_present_port(wanted, node), node, hints, Systemd(), VERSION)
        stack.push_async_callback(server.presence.close)
        await server.presence.register()
        if config.metrics_port is not None:
            page = MetricsPage(config.metrics_port, server.condition)
            stack.callback(page.close)
            log.info("metrics at %s/metrics", page.url)
        await server.live(stop)


def _client(coordinator: str, node: NodeConfig) -> HintClient:
    """Signs with the key by which the peer is known: a site gives leases to nobody else."""
    assert node.identity_path is not None, "lasting_identity makes one where the operator names none"
    return HintClient(coordinator, read_signer(node.identity_path))


def node_config(config: ServeConfig) -> NodeConfig:
    return NodeConfig(
        initial_peers=config.initial_peers,
        listen=config.listen,
        announce=config.announce,
        identity_path=config.identity_path,
        port_mapping=config.port_mapping,
        relay=config.relay,
    )


def raise_open_files_limit() -> None:
    """To what the system allows this process: each connection takes a file, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
