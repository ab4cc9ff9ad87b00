"""A server's place in the swarm: its node, the procedures registered on it, and its announcements, kept working.

A p2pd that has died or frozen is replaced by a new one with the same identity and, where it can be had, the same port;
bootstrap peers that were away are called again when they are back. None of it stops the compute thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from blockserver.compute.engine import Engine
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.rpc.reachability import ReachabilityProtocol
from blockserver.serving.announce import Announcer
from swarm.dht.node import Node, NodeConfig, make_identity, start_node
from swarm.errors import LocalError, RemoteError, Unreachable

log = logging.getLogger(__name__)

REMEMBERED_PEERS = 16
"""Addresses of peers seen while all was well, by which to enter again when the bootstrap peers are gone."""

MAX_BACKOFF_S = 60.0
GIVE_UP_HANDLER_S = 3.0


class Presence:
    """`make_handler` makes the servicer for a node; `announcer` is moved to each new one. `register` before anything else."""

    def __init__(
        self,
        config: NodeConfig,
        node: Node,
        announcer: Announcer,
        make_handler: Callable[[Node], TransformerConnectionHandler],
        interval_s: float,
    ) -> None:
        self.node, self.announcer = node, announcer
        self.handler = make_handler(node)
        self.down = False
        self.reconnects = 0
        self._config, self._make_handler, self._interval_s = config, make_handler, interval_s
        self._engine: Engine | None = None
        self._remembered: tuple[str, ...] = ()

    async def register(self) -> None:
        """From now on peers may call."""
        await self.handler.start()
        await ReachabilityProtocol(self.node.p2p).start()

    def set_engine(self, engine: Engine | None) -> None:
        self._engine = engine
        self.handler.set_engine(engine)

    def set_model(self, prefix: str) -> None:
        """Another model, of which no blocks are held yet. A handler that is made later is made for it (`make_handler`)."""
        self.set_engine(None)
        self.handler.set_prefix(prefix)

    async def keep(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look_after()
            # Door: whatever goes wrong here is tried again; without it a server that serves would be lost to the swarm.
            except Exception:
                log.exception("keeping the connection to the swarm failed; trying again")

    async def look_after(self) -> None:
        """One round: replaces a dead p2pd, calls lost bootstrap peers."""
        try:
            if self.down:
                raise Unreachable("p2pd was not started yet")
            addresses = await self.node.connected_addresses()
        except Unreachable as error:
            await self._replace(error)
            return
        self._remembered = (addresses or self._remembered)[:REMEMBERED_PEERS]
        returned = await self.node.rejoin()
        if returned:
            log.info("bootstrap peers answer again: %s; announcing anew", ", ".join(sorted(returned)))
            await self.announcer.repeat()

    async def _replace(self, error: Unreachable) -> None:
        if not self.down:
            log.warning("%s; starting another one with the same identity", error)
            self.down = True
            self.node.kill()
            with contextlib.suppress(Exception):  # Door: it is broken, and only asked to end its sessions.
                await asyncio.wait_for(self.handler.stop(0.0), GIVE_UP_HANDLER_S)
            await self.node.stop()
        delay = min(self._interval_s, 1.0)
        while True:
            try:
                self.node = await start_node(self._next_config())
                break
            except (RemoteError, LocalError) as failure:
                log.warning("no connection to the swarm: %s; trying again in %.0f s", failure, delay)
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_BACKOFF_S)
        await self._settle_in()

    def _next_config(self) -> NodeConfig:
        peers = tuple(dict.fromkeys((*self._config.initial_peers, *self._remembered)))
        return replace(self._config, initial_peers=peers)

    async def _settle_in(self) -> None:
        # Later looks at the bootstrap peers go by the operator's list, not by whoever was met on the way.
        self.node.config = self._config
        self.handler = self._make_handler(self.node)
        self.handler.set_engine(self._engine)
        await self.register()
        self.announcer.node = self.node
        self.down = False
        self.reconnects += 1
        log.info("back in the swarm as %s", self.node.peer_id)
        await self.announcer.repeat()

    async def drain(self, drain_s: float) -> None:
        """Lets sessions run out and gives up the blocks. Announcing OFFLINE is the caller's, before."""
        if not self.down:
            with contextlib.suppress(Exception):  # Door: p2pd may die meanwhile, and the process ends anyway.
                await asyncio.wait_for(self.handler.stop(drain_s), drain_s + GIVE_UP_HANDLER_S)
        self.set_engine(None)

    async def close(self) -> None:
        await self.node.stop()


@contextlib.asynccontextmanager
async def lasting_identity(config: NodeConfig) -> AsyncIterator[NodeConfig]:
    """Without an identity file p2pd would take a new identity each time it is replaced: one file for this run, then."""
    if config.identity_path is not None:
        yield config
        return
    with tempfile.TemporaryDirectory(prefix="sepal-") as folder:
        path = Path(folder) / "identity"
        make_identity(path)
        yield replace(config, identity_path=path)


async def with_present_port(config: NodeConfig, node: Node) -> NodeConfig:
    """`/tcp/0` as the port that was given, so that a replaced p2pd is found at the same addresses."""
    ports = {address.split("/tcp/", 1)[1].split("/", 1)[0] for address in await node.addresses() if "/tcp/" in address}
    if len(ports) != 1:
        return config
    (port,) = ports
    listen = tuple(
        address.removesuffix("/tcp/0") + f"/tcp/{port}" if address.endswith("/tcp/0") else address for address in config.listen
    )
    return replace(config, listen=listen)
