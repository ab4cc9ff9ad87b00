"""Before anything is read: who is there? All known nodes are asked at once, those whom they name, and who was silent last time.

So that any number of frozen nodes costs one time limit together, before the first stage of a crawl, and none in those after it.
It asks for nothing that is stored: replies are small, whatever stands in the DHT.
"""

from __future__ import annotations

import asyncio
from collections import deque

from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from swarm.dht.addresses import peer_id_of
from swarm.dht.canary import canary_key
from swarm.dht.foreign import node_id_of
from swarm.dht.node import Node
from swarm.dht.silence import Silence
from swarm.wire.keys import MODELS_KEY

LIMIT_S = 5.0
"""For one answer, as for every question to a node: a peer behind a relay takes up to 3 s."""
BEGINS_WITHIN_S = 1.0
"""Those whose turn has not come by then are left to the reading itself."""
AT_ONCE, MOST = 64, 512
"""Questions: libp2p dials at most 160 peers at a time, and servers are dialled beside this."""


async def call_the_roll(node: Node, silence: Silence) -> None:
    """Tells `silence` who answers and who does not. Bootstrap peers are asked by `entrances.look`, beside this."""
    roll = _Roll(node, silence)
    calls: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + BEGINS_WITHIN_S
    try:
        while True:
            while roll.waiting and len(calls) < AT_ONCE and loop.time() < ends_at:
                calls.add(asyncio.ensure_future(roll.ask(roll.waiting.popleft())))
            if not calls:
                return
            _, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class _Roll:
    def __init__(self, node: Node, silence: Silence) -> None:
        self._protocol, self._silence = node.dht.protocol, silence
        # The neighbours of a key, and not of one that stands there: what is stored under it is not wanted here.
        near = [DHTID(DHTID.generate(key) ^ 1) for key in (canary_key(node), MODELS_KEY)]
        self._request = dht_pb2.FindRequest(keys=[key.to_bytes() for key in near], peer=self._protocol.node_info)
        entrances = {PeerID.from_base58(peer_id_of(address)) for address in node.config.initial_peers}
        self._met = {node.p2p.peer_id, *entrances}
        self.waiting: deque[PeerID] = deque()
        # Those that have answered before come first: anyone may name peers that do not exist, by the hundred.
        for peer in (*self._protocol.routing_table.uid_to_peer_id.values(), *silence.suspects):
            self._meet(peer)

    def _meet(self, peer: PeerID) -> None:
        if peer not in self._met and len(self._met) < MOST:
            self._met.add(peer)
            self.waiting.append(peer)

    async def ask(self, peer: PeerID) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                response = await self._protocol.get_stub(peer).rpc_find(self._request, timeout=LIMIT_S)
            own = node_id_of(response.peer.node_id)
            named = [PeerID(raw) for result in response.results for raw in result.nearest_peer_ids]
        except TimeoutError:
            self._silence.fell(peer)
            await self._protocol.update_routing_table(None, peer, responded=False)
            return
        except Exception:  # a door, as in `bulk`: whatever failed at once costs nobody any time
            return
        self._silence.spoke(peer)
        if own is not None:
            await self._protocol.update_routing_table(own, peer, responded=True)
        for other in named:
            self._meet(other)
