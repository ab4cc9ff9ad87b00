"""The gateway's process: a peer in the swarm, a model's two ends, and an HTTP server, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator

import torch
import uvicorn
from starlette.applications import Starlette

from blockserver.client.discovery import RouteFinder
from blockserver.client.model import RemoteModel
from blockserver.client.notes import Notes
from blockserver.gateway import config as limits
from blockserver.gateway.answering import Studio
from blockserver.gateway.app import Gateway
from blockserver.gateway.config import GatewayConfig
from blockserver.gateway.connection import Connection
from blockserver.gateway.metrics import Metrics
from blockserver.gateway.sight import Sight
from blockserver.gateway.turns import Turns
from blockserver.gateway.voice import Voice
from blockserver.model.facts import read_facts
from blockserver.ready import write_ready_file
from blockserver.reporting import reporting
from blockserver.serving.systemd import Systemd
from swarm.dht.node import NodeConfig, start_node
from swarm.errors import LocalError

log = logging.getLogger(__name__)


async def run_gateway(config: GatewayConfig, stop: asyncio.Event) -> None:
    """Until `stop` is set. Raises LocalError or RemoteError where it cannot begin."""
    facts = read_facts(config.model)
    with listening(config.host, config.port) as listener:
        joining = NodeConfig(initial_peers=config.initial_peers, client_mode=True, relay=config.relay)
        node = await start_node(joining)
        finder = RouteFinder(node, config.prefix or facts.prefix, facts.num_blocks)
        try:
            model = await asyncio.to_thread(
                lambda: RemoteModel.load(
                    config.model,
                    node.p2p,
                    finder,
                    prefix=config.prefix,
                    dtype=None if config.dtype == "auto" else getattr(torch, config.dtype),
                    limits=limits.SERVER_LIMITS,
                    patience=limits.PATIENCE,
                    notes=None if config.coordinator is None else Notes(),
                )
            )
        except BaseException:
            await node.stop()
            raise
        sight = Sight(f"{config.site.rstrip('/')}/m/{model.prefix}" if config.site else None)
        connection = Connection(node, finder, joining, model, sight)
        try:
            async with reporting(config.coordinator, model.prefix, model.notes):
                await _serve(config, stop, listener, connection, model, sight)
        finally:
            await connection.stop()


async def _serve(
    config: GatewayConfig,
    stop: asyncio.Event,
    listener: socket.socket,
    connection: Connection,
    model: RemoteModel,
    sight: Sight,
) -> None:
    async with model:
        voice = Voice.of(config.model, model, config.max_length, config.manner)
        turns = Turns(config.max_concurrent, config.max_waiting, config.max_waiting_each)
        metrics = Metrics()
        metrics.watch(lambda: turns.running, lambda: turns.waiting, lambda: len(sight.missing_since))
        studio = Studio(voice, turns, sight, metrics)
        gateway = Gateway(studio, config.api_keys, config.trusted_proxies, lambda: connection.connected, began=int(time.time()))
        systemd = Systemd()
        keeping = asyncio.create_task(connection.keep(limits.LOOK_S, systemd.alive))

        def started() -> None:
            address = address_of(listener)
            log.info("answering for %s at %s/v1 (%d tokens of context)", voice.names[0], address, voice.context)
            write_ready_file(config.ready_file, {"url": address, "pid": os.getpid()})
            systemd.ready(f"answering at {address}/v1")

        try:
            await serve_http(gateway.app(), listener, stop, studio, started)
        finally:
            systemd.stopping()
            keeping.cancel()
            await asyncio.wait({keeping})
            voice.close()


class _Server(uvicorn.Server):
    """Signals are the process's own affair: it tells open streams before it ends them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_http(
    app: Starlette, listener: socket.socket, stop: asyncio.Event, studio: Studio, started: Callable[[], None] = lambda: None
) -> None:
    """Until `stop` is set; open streams are then told, and have STOP_S to say so."""
    # Its lines would hold callers' addresses.
    logging.getLogger("uvicorn.access").disabled = True
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=int(limits.STOP_S),
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    stopped = asyncio.create_task(stop.wait())
    started()
    await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    server.should_exit = True
    studio.stop()
    await serving


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bound before anything is loaded: a port that is taken is said at once. LocalError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise LocalError(f"--host {host}: {error.strerror}") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            raise LocalError(f"--port {port} on {host}: {error.strerror}. Choose another port, or 0 for any") from error
        listener.setblocking(False)
        yield listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
