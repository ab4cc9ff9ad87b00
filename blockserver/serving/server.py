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
from blockserver.model.facts import ModelFacts
from blockserver.serving.hint_client import HintClient
from blockserver.serving.identity import read_signer
from blockserver.serving.life import BlockServer, Plan
from blockserver.serving.loading import blocks_to_serve, dtype_of, read_model, require
from blockserver.serving.metrics import MetricsPage
from blockserver.serving.presence import lasting_identity, with_present_port
from blockserver.serving.systemd import Systemd
from swarm.dht.node import NodeConfig, start_node
from swarm.errors import LocalError
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

VERSION = f"sepal-{version('sepal')}"


async def serve(config: ServeConfig, stop: asyncio.Event) -> None:
    """Serves until `stop` is set. Raises LocalError or RemoteError where it cannot begin."""
    raise_open_files_limit()
    log.info("devices: %s", "; ".join(map(str, find_devices())))
    plan = make_plan(config)
    async with contextlib.AsyncExitStack() as stack:
        wanted = await stack.enter_async_context(lasting_identity(node_config(config)))
        node = await start_node(wanted)
        log.info("peer %s listens on %s", node.peer_id, ", ".join(await node.addresses()))
        hints = await stack.enter_async_context(_client(config.coordinator, wanted)) if config.coordinator else None
        server = BlockServer(config, plan, await with_present_port(wanted, node), node, hints, Systemd(), VERSION)
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


def make_plan(config: ServeConfig) -> Plan:
    """What will be served, as far as the machine and the model's files decide it."""
    facts = read_model(config)
    dtype = dtype_of(config, facts)
    num_blocks = blocks_to_serve(config, config.num_blocks, facts, dtype, config.cache_tokens)
    fixed = _checked_fixed_span(config.block_indices, facts)
    require(config, fixed or facts.whole)
    plan = Plan(facts, config.prefix or facts.prefix, dtype, len(fixed) if fixed else num_blocks, fixed)
    log.info(
        "%s: %d blocks of %.1f MB; this server takes %d of them, in %s, with a cache of %d tokens",
        plan.prefix, facts.num_blocks, facts.bytes_per_block(dtype) / 1e6,
        plan.num_blocks, plan.dtype_name, config.cache_tokens,
    )  # fmt: skip
    return plan


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


def _checked_fixed_span(span: Span | None, facts: ModelFacts) -> Span | None:
    if span is not None and not facts.whole.covers(span):
        raise LocalError(f"--block-indices {span}: {facts.folder.name} has blocks 0 to {facts.num_blocks - 1}")
    return span
