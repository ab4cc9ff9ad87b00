"""How far the servers are to which this one may have to hand on: announced as `next_pings`, so that clients find short ways.

As Petals' servers do: some that hold the block after this server's span, and some that hold its inner blocks, since a client
may leave it early. Knows the model as seen in the DHT; randomness is given.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from blockserver.rpc.pings import Pings
from swarm.dht.node import Node
from swarm.errors import RemoteError
from swarm.snapshot import Model, PeerState
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

MOST_OF_EACH = 5
"""As Petals: enough to find a near one, and a record stays small."""


class Ways:
    """Round trips to those servers, kept smooth. Failing to measure never stops a server: clients take unknown ways for
    average ones."""

    def __init__(self, view: Callable[[], Awaitable[Model]]) -> None:
        self._view = view
        self._pings: Pings | None = None

    @property
    def measured(self) -> dict[str, float]:
        """Seconds by peer id, infinite for one that did not answer."""
        return self._pings.all() if self._pings else {}

    async def measure(self, node: Node, span: Span) -> None:
        self._pings = self._pings or Pings(node.p2p)
        self._pings.p2p = node.p2p  # p2pd may have been replaced
        try:
            await self._pings.measure(neighbours(await self._view(), span, node.peer_id, random.Random()))  # noqa: S311
        except RemoteError as error:
            log.info("the ways to other servers could not be measured: %s", error)


def neighbours(seen: Model, span: Span, own_peer_id: str, source: random.Random) -> list[str]:
    """Peer ids, without doubles: of the block after the span first."""
    online = [server for server in seen.servers if server.state is PeerState.ONLINE and server.peer_id != own_peer_id]
    after = [server.peer_id for server in online if span.end in server.span]
    # Entered at one of the inner blocks, they would go on with it; at this server's first block they take its place.
    inner = [server.peer_id for server in online if any(block in server.span for block in range(span.start + 1, span.end))]
    chosen = _some(after, source)
    return list(dict.fromkeys([*chosen, *_some([peer for peer in inner if peer not in chosen], source)]))


def _some(peers: Sequence[str], source: random.Random) -> list[str]:
    return source.sample(peers, min(MOST_OF_EACH, len(peers)))
