"""The gateway's peer in the swarm: a p2pd that is replaced when it dies, and a look at the model's blocks now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from blockserver.client.discovery import RouteFinder, candidates
from blockserver.client.model import RemoteModel
from blockserver.gateway.sight import Sight
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.errors import LocalError, RemoteError, Unreachable

log = logging.getLogger(__name__)


class Connection:
    """`model` is given each new node. Answers that are under way when p2pd dies end with it."""

    def __init__(self, node: Node, config: NodeConfig, model: RemoteModel, sight: Sight) -> None:
        self.node, self.connected = node, True
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
            self.node.kill()
            await self.node.stop()
            if not await self._replaced():
                return
        await self.node.rejoin()
        self.connected = True
        await self._look()

    async def _replaced(self) -> bool:
        try:
            self.node = await start_node(self._config)
        except (LocalError, RemoteError) as error:
            log.warning("no connection to the swarm: %s; trying again", error)
            return False
        self._model.p2p = self.node.p2p
        self._model.find_route = RouteFinder(self.node, self._model.prefix, self._model.facts.num_blocks)
        log.info("back in the swarm")
        return True

    async def _look(self) -> None:
        """What could not be read says nothing about servers."""
        whole = self._model.facts.whole
        seen = await RouteFinder(self.node, self._model.prefix, len(whole)).view()
        if seen.unread_blocks:
            return
        held = {block for candidate in candidates(seen) for block in candidate.span}
        self._sight.looked([block for block in whole if block not in held], time.time())
