"""The gateway's peer in the swarm: a p2pd that is replaced when it dies, and a look at the model's blocks now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from blockserver.client.discovery import RouteFinder
from blockserver.client.model import RemoteModel
from blockserver.client.routes import as_router
from blockserver.gateway.sight import Sight
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.errors import LocalError, RemoteError, Unreachable
from swarm.snapshot import PeerState

log = logging.getLogger(__name__)


class Connection:
    """`finder` is the model's, on `node`; both are replaced with it. Answers that are under way when p2pd dies end with it."""

    def __init__(self, node: Node, finder: RouteFinder, config: NodeConfig, model: RemoteModel, sight: Sight) -> None:
        self.node, self.finder, self.connected = node, finder, True
        self._config, self._model, self._sight = config, model, sight

    async def keep(self, interval_s: float, alive: Callable[[], object] = lambda: None) -> None:
        """Until cancelled. `alive` is called each time: this loop runs as long as the process does its work."""
        while True:
            alive()
            try:
                await self.look_after()
            # Door: whatever goes wrong here is tried again; without it the gateway would go blind in silence.
            except Exception:
                log.exception("looking after the connection to the swarm failed; trying again")
            await asyncio.sleep(interval_s)

    async def look_after(self) -> None:
        """One round."""
        try:
            await self.node.connected_addresses()
        except Unreachable as error:
            self.connected = False
            log.warning("%s; starting another one", error)
            if self._model.notes is not None:
                self._model.notes.it_was_us()
            self.node.kill()
            await self.stop()
            if not await self._replaced():
                return
        await self.node.rejoin()
        self.connected = True
        await self._look()

    async def stop(self) -> None:
        await self.finder.close()
        await self.node.stop()

    async def _replaced(self) -> bool:
        try:
            self.node = await start_node(self._config)
        except (LocalError, RemoteError) as error:
            log.warning("no connection to the swarm: %s; trying again", error)
            return False
        self._model.p2p = self.node.p2p
        self.finder = RouteFinder(self.node, self._model.prefix, self._model.facts.num_blocks)
        self._model.find_route, self._model.router = self.finder, as_router(self.finder)
        log.info("back in the swarm")
        return True

    async def _look(self) -> None:
        """What could not be read says nothing about servers."""
        seen, now = await self.finder.view(), time.time()
        if seen.unread_blocks:
            return
        online = [server for server in seen.servers if server.state is PeerState.ONLINE and server.expires_at > now]
        held = {block for server in online for block in server.span}
        self._sight.looked([block for block in self._model.facts.whole if block not in held], now)
