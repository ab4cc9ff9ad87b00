"""Many keys in few calls: a hundred keys to each of the nodes that are nearest to them, and what they answered, undecoded.

hivemind's own look-up walks the DHT once for every key, drops a node from its routing table for one reply that was too large,
and hangs on one value that it cannot decode. This asks over the same RPC, within one time limit, and drops only nodes that do
not answer the smallest question either: a call that fails is split until the key that is to blame stands alone.

Who is silent is waited for once in a crawl (`silence`), and while it is, the next nearest nodes are asked already.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from swarm.dht.foreign import node_id_of
from swarm.dht.node import Node
from swarm.dht.silence import Silence

KEYS_PER_CALL = 100
FIRST_CALL = 16
"""Keys of the first call to a node, from whose size that of the next ones is chosen."""
REPLY_BYTES = 1 << 20
"""Aimed at for a reply: a quarter of the 4 MiB that p2pd lets through."""
SPLIT_INTO = 8
CALLS_AT_ONCE, CALLS_TO_ONE_NODE = 32, 4
"""In flight. More to one node only wait there, and run into their time limit."""
CALL_TIMEOUT_S = 5.0
OVERDUE_S = 1.0
"""After so long without an answer a node is asked the smallest question as well, and where it has not said a word in this
crawl, others in its place. Its own answer is waited for until its time is over."""
FIRST_REPLICAS, REPLICAS = 3, 5
"""A record is written to the five nodes nearest to its key. Where the nearest three of
many hold the same, the others are not asked."""
MAX_NODES = 2_000
"""Nodes that are kept in mind while reading: anyone may name any number of them."""
MAX_ROUNDS = 8

Heard = Callable[[int], None]


@dataclass
class Replies:
    """Per key, in the order of asking, each answering node's raw result; and who answered for it at all."""

    results: dict[DHTID, list[dht_pb2.FindResult]] = field(default_factory=lambda: defaultdict(list))
    too_large: set[DHTID] = field(default_factory=set)


async def find(
    node: Node, ids: Iterable[DHTID], timeout_s: float, heard: Heard | None = None, silence: Silence | None = None
) -> Replies:
    """Whatever has been answered when `timeout_s` is over. `heard` is told how many keys somebody has answered for by now.
    `silence` is the crawl's: who is silent there is not asked, who falls silent here is added."""
    search = _Search(node, list(ids), heard, silence if silence is not None else Silence())
    work = asyncio.ensure_future(search.run())
    try:
        await asyncio.wait({work}, timeout=timeout_s)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return search.replies


class _Search:
    def __init__(self, node: Node, ids: list[DHTID], heard: Heard | None, silence: Silence) -> None:
        self.replies = Replies()
        self._heard = heard
        self._ids = ids
        self._protocol = node.dht.protocol
        self._own_id = node.dht.node_id
        self._nodes: dict[DHTID, PeerID] = dict(self._protocol.routing_table.uid_to_peer_id)
        self._silence = silence
        self._late: dict[asyncio.Task[None], DHTID] = {}
        self._asides: set[asyncio.Task[dht_pb2.FindResponse]] = set()
        self._asked: dict[DHTID, set[DHTID]] = defaultdict(set)
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)
        self._calls_to: dict[DHTID, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(CALLS_TO_ONE_NODE))
        self._bytes_per_key = 0.0

    async def run(self) -> None:
        rounds = 0
        try:
            while rounds < MAX_ROUNDS or self._late:
                work = self._next_round() if rounds < MAX_ROUNDS else {}
                if work:
                    rounds += 1
                    calls = {asyncio.ensure_future(self._ask_node(who, ids)): who for who, ids in work.items()}
                    self._late.update(calls)
                    await self._punctual(calls)
                elif self._late:
                    await asyncio.wait(self._late, return_when=asyncio.FIRST_COMPLETED)
                else:
                    return
                self._late = {call: who for call, who in self._late.items() if not call.done()}
        finally:
            await self._end([*self._late, *self._asides])

    async def _punctual(self, calls: dict[asyncio.Task[None], DHTID]) -> None:
        """Until all these have ended, but for those of nodes that have not said a word: nobody else waits for them."""
        _, waiting = await asyncio.wait(calls, timeout=OVERDUE_S)
        while waiting := {call for call in waiting if not call.done() and self._silence.heard(self._nodes[calls[call]])}:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    async def _end(self, calls: list[asyncio.Task[Any]]) -> None:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _next_round(self) -> dict[DHTID, list[DHTID]]:
        """Whom to ask for which keys: the nearest of those known by now, who have not been asked for them yet."""
        late = set(self._late.values())
        living = [who for who, peer in self._nodes.items() if peer not in self._silence and who not in late]
        few = len(living) <= REPLICAS
        work: dict[DHTID, list[DHTID]] = defaultdict(list)
        for key in self._ids:
            nearest = heapq.nsmallest(REPLICAS, living, key=key.xor_distance)
            wanted = nearest if few or self._disagree(key) else nearest[:FIRST_REPLICAS]
            for who in wanted:
                if key not in self._asked[who]:
                    self._asked[who].add(key)
                    work[who].append(key)
        return work

    def _disagree(self, key: DHTID) -> bool:
        """Whether the nodes asked so far hold different things under the key: then one of them may have missed more."""
        sizes = {len(result.value) for result in self.replies.results.get(key, ())}
        return len(sizes) > 1 or key in self.replies.too_large

    async def _ask_node(self, who: DHTID, ids: list[DHTID]) -> None:
        position, size = 0, FIRST_CALL if not self._bytes_per_key else self._fitting()
        calls = []
        if not self._bytes_per_key:
            await self._ask(who, ids[:size])
            position, size = size, self._fitting()
        while position < len(ids):
            calls.append(self._ask(who, ids[position : position + size]))
            position += size
        await asyncio.gather(*calls)

    def _fitting(self) -> int:
        return max(1, min(KEYS_PER_CALL, int(REPLY_BYTES / max(self._bytes_per_key, 1.0))))

    async def _ask(self, who: DHTID, ids: list[DHTID]) -> None:
        peer = self._nodes[who]
        async with self._calls_to[who], self._calls:
            # It may have fallen silent while this call waited for its turn.
            response = await self._call(who, ids) if peer not in self._silence else None
        if response is not None:
            self._take(ids, response)
        elif peer in self._silence:
            return
        elif len(ids) > 1:
            # A node that cannot send its reply stays silent, and each silence costs a time limit: so not by halves.
            size = max(1, len(ids) // SPLIT_INTO)
            await asyncio.gather(*(self._ask(who, ids[start : start + size]) for start in range(0, len(ids), size)))
        else:
            self.replies.too_large.update(ids)

    async def _call(self, who: DHTID, ids: list[DHTID]) -> dht_pb2.FindResponse | None:
        """None where this node answers, but not this: the reply would be too large. A node that does not answer is silent; the
        smallest question is asked while the other one is overdue, so that both silences are one."""
        question = asyncio.ensure_future(self._rpc(who, [key.to_bytes() for key in ids], CALL_TIMEOUT_S))
        smallest: asyncio.Task[dht_pb2.FindResponse] | None = None
        try:
            await asyncio.wait({question}, timeout=OVERDUE_S)
            if not question.done():
                smallest = self._aside(who, CALL_TIMEOUT_S - OVERDUE_S)
            # A door: what a stranger's node answers may break hivemind in any way, and is that node's fault alone.
            with contextlib.suppress(Exception):
                return await question
            try:
                await (smallest or self._aside(who, CALL_TIMEOUT_S))
            except Exception:
                self._silence.fell(self._nodes[who])
                await self._protocol.update_routing_table(who, self._nodes[who], responded=False)
            return None
        finally:
            question.cancel()

    def _aside(self, who: DHTID, limit_s: float) -> asyncio.Task[dht_pb2.FindResponse]:
        aside = asyncio.ensure_future(self._rpc(who, [], limit_s))
        self._asides.add(aside)
        aside.add_done_callback(self._ended)
        return aside

    def _ended(self, aside: asyncio.Task[dht_pb2.FindResponse]) -> None:
        self._asides.discard(aside)
        if not aside.cancelled():
            aside.exception()  # nobody may have waited for it

    async def _rpc(self, who: DHTID, keys: list[bytes], limit_s: float) -> dht_pb2.FindResponse:
        request = dht_pb2.FindRequest(keys=keys, peer=self._protocol.node_info)
        async with asyncio.timeout(limit_s):
            response = await self._protocol.get_stub(self._nodes[who]).rpc_find(request, timeout=limit_s)
        self._silence.spoke(self._nodes[who])
        if len(response.results) != len(keys):
            raise ValueError("the reply does not fit the question")
        met = node_id_of(response.peer.node_id)
        if met is not None:
            await self._protocol.update_routing_table(met, self._nodes[who], responded=True)
        return response

    def _take(self, ids: list[DHTID], response: dht_pb2.FindResponse) -> None:
        per_key = response.ByteSize() / len(ids)
        # Grows at once and shrinks slowly, since one reply too many bytes costs more than one call too many.
        self._bytes_per_key = max(per_key, 0.9 * self._bytes_per_key)
        for key, result in zip(ids, response.results, strict=True):
            self.replies.results[key].append(result)
            for raw_id, raw_peer in zip(result.nearest_node_ids, result.nearest_peer_ids, strict=False):
                if len(self._nodes) < MAX_NODES:
                    found = node_id_of(raw_id)
                    if found is not None and found != self._own_id:
                        self._nodes.setdefault(found, PeerID(raw_peer))
        if self._heard is not None:
            self._heard(len(self.replies.results))
