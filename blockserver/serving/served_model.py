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
from swarm.snapshot import Model, Server, assemble

log = logging.getLogger(__name__)


class ServedModel:
    """`node` gives the present node, None while p2pd is being replaced."""

    def __init__(self, offer: Offer, node: Callable[[], Node | None]) -> None:
        self.offer = offer
        self.rates = Rates(offer.config, offer.prefix)
        self._node = node
        self._seen: dict[str, dict[str, Server]] = {}

    @property
    def prefix(self) -> str:
        return self.offer.prefix

    async def view(self) -> Model:
        """The model as this server sees it in the DHT, announcements believed."""
        readings = await read_blocks(self._here(), {self.prefix: self.offer.facts.num_blocks})
        models = {self.prefix: self.offer.record}
        # Others may say for ever that they load: what was seen last time says since when.
        seen = assemble("", time.time(), models, readings, visits=None, known=self._seen).models[0]
        self._seen = {seen.prefix: {server.peer_id: server for server in seen.servers}}
        return seen

    def pace(self) -> Pace | None:
        device = str(loading.device_of(self.offer.config))
        return self.rates.pace(self.offer.dtype_name, device, self.offer.bytes_per_token)

    def note_load(self, blocks: int, seconds: float) -> None:
        self.rates.note_load(self.offer.dtype_name, str(loading.device_of(self.offer.config)), blocks, seconds)

    def load_s(self, blocks: int) -> float | None:
        """How long so many blocks would load, by the last load; None where there was none."""
        return self.rates.load_s(self.offer.dtype_name, str(loading.device_of(self.offer.config)), blocks)

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
