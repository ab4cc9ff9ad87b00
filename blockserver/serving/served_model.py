"""One model of the repertoire in this swarm: what the DHT shows of it, and how fast this machine is with it. Rates are kept for
each model by itself: another model's blocks are of another size.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from blockserver.serving import loading
from blockserver.serving.rates import Rates
from blockserver.serving.repertoire import Offer
from swarm.dht.node import Node
from swarm.dht.reading import read_blocks
from swarm.errors import RemoteError, Unreachable
from swarm.placement import Pace
from swarm.snapshot import Model, assemble

log = logging.getLogger(__name__)


class ServedModel:
    """`node` gives the present node, None while p2pd is being replaced."""

    def __init__(self, offer: Offer, node: Callable[[], Node | None]) -> None:
        self.offer = offer
        self.rates = Rates(offer.config, offer.prefix)
        self._node = node

    @property
    def prefix(self) -> str:
        return self.offer.prefix

    async def view(self) -> Model:
        """The model as this server sees it in the DHT, announcements believed."""
        readings = await read_blocks(self._here(), {self.prefix: self.offer.facts.num_blocks})
        return assemble("", time.time(), {self.prefix: self.offer.record}, readings, visits=None).models[0]

    def pace(self) -> Pace | None:
        device = str(loading.device_of(self.offer.config))
        return self.rates.pace(self.offer.dtype_name, device, self.offer.bytes_per_token)

    async def measure_network(self) -> None:
        """Never stops a server: without a figure only what it computes is announced."""
        try:
            await self.rates.network(self._here(), await self.view(), self.offer.bytes_per_token)
        except RemoteError as error:
            log.info("the network could not be measured: %s", error)

    def _here(self) -> Node:
        node = self._node()
        if node is None:
            raise Unreachable("p2pd is being replaced")
        return node
