"""The bootstrap peers, address by address: does its name resolve, does anything listen there, does its peer answer a DHT query
that comes over just that address?

And do they all know the same swarm? Peers with the same list of entrances have been seen to form two swarms.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2
from hivemind.utils.multiaddr import Multiaddr

from swarm.dht.addresses import peer_id_of
from swarm.dht.canary import canary_key
from swarm.dht.foreign import node_id_of
from swarm.dht.node import Node
from swarm.dht.scout import Found, ask_through
from swarm.dht.silence import Silence
from swarm.snapshot import AddressState

TIMEOUT_S = 5.0
SCOUT_EVERY_S = 300.0
SCOUT_AGAIN_S = 60.0
"""Where it failed. A bootstrap peer that died shows in the common query at once."""
SCOUTS_AT_ONCE = 4
SCOUTS_BEGIN_WITHIN_S = 2.5
"""A healthy address takes half a second, so that twenty have their turn; of silent ones the first four do, and the others in
the next looks."""
SCOUTS_END_WITHIN_S = 8.0
"""For all of them together, however many there are: one silent peer's limit, and a p2pd that starts slowly."""
LOOK_ENDS_WITHIN_S = 6.0
"""Where some peer is silent: by then its limit is over, and a scout to an address of another one is back. What a scout finds
later counts in the next look."""
NO_ANSWER = "no answer to a DHT query"

_NAMES = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}


@dataclass(slots=True)
class Scouts:
    """What was found over each address, and when: a query over one address takes a p2pd of its own, which is not started
    with each crawl."""

    found: dict[str, tuple[float, Found]] = field(default_factory=dict)
    trying: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Those whose answer a look did not wait for: it counts in the next one. A p2pd that starts is not to be abandoned."""

    async def ask(self, address: str, answers: bool, relay: bool, clock: Callable[[], float] = time.monotonic) -> Found:
        """`answers`: whether the peer answers over any address now. What was found before stands while that agrees with it."""
        stands = self._standing(address, answers, clock())
        if stands is not None:
            return stands
        found = await ask_through(address, relay)
        if found.ok is None:
            # Not its fault: what the common connection says is all there is.
            return Found(answers, "" if answers else NO_ANSWER)
        self.found[address] = (clock(), found)
        return found

    async def ask_all(
        self,
        answers: Mapping[str, bool],
        relay: bool,
        clock: Callable[[], float] = time.monotonic,
        within_s: float | None = None,
    ) -> dict[str, Found]:
        """Every address, within one limit. For those whose turn does not come stands what was found before, and says so."""
        began = clock()
        done = {a: found for a, up in answers.items() if (found := self._standing(a, up, began)) is not None}
        # Whoever was tried longest ago comes first, so that silent ones keep nobody waiting for ever.
        idle = answers.keys() - done.keys() - self.trying.keys()
        waiting = sorted(idle, key=lambda a: (self.found.get(a, (-math.inf,))[0], a))

        async def ask(address: str) -> None:
            try:
                done[address] = await self.ask(address, answers[address], relay, clock)
            finally:
                del self.trying[address]

        async def in_turn() -> None:
            while True:
                while waiting and len(self.trying) < SCOUTS_AT_ONCE and clock() - began < SCOUTS_BEGIN_WITHIN_S:
                    address = waiting.pop(0)
                    self.trying[address] = asyncio.ensure_future(ask(address))
                if not self.trying:
                    return
                await asyncio.wait(self.trying.values(), return_when=asyncio.FIRST_COMPLETED)

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(in_turn(), SCOUTS_END_WITHIN_S if within_s is None else within_s)
        return {address: done.get(address) or self._untried(address, up, clock()) for address, up in answers.items()}

    def _standing(self, address: str, answers: bool, now: float) -> Found | None:
        """What was found lately, where it agrees with what is known now."""
        at, before = self.found.get(address, (-math.inf, Found(None)))
        again_s = SCOUT_EVERY_S if before.ok else SCOUT_AGAIN_S
        return before if before.ok is not None and now - at < again_s and (answers or not before.ok) else None

    def _untried(self, address: str, answers: bool, now: float) -> Found:
        at, before = self.found.get(address, (-math.inf, Found(None)))
        if before.ok is None:
            told = "its peer answers" if answers else NO_ANSWER
            return Found(answers, f"{told}; this address has not been tried by itself yet")
        ago = f"tried {now - at:.0f} s ago, and not again since"
        if before.ok:
            return Found(answers, ago if answers else f"{NO_ANSWER}; this address was {ago}")
        return Found(False, f"{before.detail or NO_ANSWER}; {ago}")


async def look(
    node: Node, scouts: Scouts | None = None, silence: Silence | None = None
) -> tuple[tuple[AddressState, ...], str]:
    """Every configured address, and which bootstrap peers do not know the same swarm, if any. All are asked at once, so that
    dead ones cost one time limit together. Who is silent, `silence` is told."""
    addresses = node.config.initial_peers
    began = time.monotonic()
    asked, knocked_at = _query_all(node, silence if silence is not None else Silence()), asyncio.gather(*map(_knock, addresses))
    known, knocks = await asyncio.gather(asked, knocked_at)
    knocked = dict(zip(addresses, knocks, strict=True))
    listening = {a: known.get(peer_id_of(a)) is not None for a, (fault, _) in knocked.items() if fault is None}
    silent = any(peers is None for peers in known.values())
    left_s = max(0.0, LOOK_ENDS_WITHIN_S - (time.monotonic() - began)) if silent else None
    found = await (scouts or Scouts()).ask_all(listening, node.config.relay, within_s=left_s)

    def state(address: str) -> AddressState:
        fault, family = knocked[address]
        step, detail = fault or ("ok" if found[address].ok else "dht", found[address].detail)
        return AddressState(address, peer_id_of(address), family, step, detail)

    return tuple(map(state, addresses)), split_between(
        {peer_id: peers for peer_id, peers in known.items() if peers is not None}
    )


def split_between(known: Mapping[str, frozenset[str]]) -> str:
    """`known` holds for each bootstrap peer that answers the peers that it knows. Those that share one are in one swarm."""
    groups: list[tuple[set[str], set[str]]] = []
    for peer_id, peers in sorted(known.items()):
        members, reach = {peer_id}, {peer_id, *peers}
        for group in [group for group in groups if group[1] & reach]:
            groups.remove(group)
            members, reach = members | group[0], reach | group[1]
        groups.append((members, reach))
    if len(groups) < 2:
        return ""
    told = " | ".join(", ".join(f"…{peer_id[-6:]}" for peer_id in sorted(members)) for members, _ in groups)
    return f"the bootstrap peers belong to {len(groups)} separate swarms: {told}"


def peers_up(states: Iterable[AddressState]) -> dict[str, bool]:
    """A peer is up where it answers a query, over whichever address."""
    up: dict[str, bool] = {}
    for state in states:
        up[state.peer_id] = up.get(state.peer_id, False) or state.up
    return up


async def _query_all(node: Node, silence: Silence) -> dict[str, frozenset[str] | None]:
    peer_ids = sorted({peer_id_of(address) for address in node.config.initial_peers})
    key = DHTID.generate(canary_key(node))
    known = await asyncio.gather(*(_query(node, peer_id, key, silence) for peer_id in peer_ids))
    return dict(zip(peer_ids, known, strict=True))


async def _query(node: Node, peer_id: str, key: DHTID, silence: Silence) -> frozenset[str] | None:
    """The peers that it knows near a key; None where it does not answer."""
    protocol, peer = node.dht.protocol, PeerID.from_base58(peer_id)
    request = dht_pb2.FindRequest(keys=[key.to_bytes()], peer=protocol.node_info)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            response = await protocol.get_stub(peer).rpc_find(request, timeout=TIMEOUT_S)
    except TimeoutError:
        silence.fell(peer)
        await protocol.update_routing_table(None, peer, responded=False)
        return None
    except Exception:  # a door, as in `bulk`: whatever it answered, it is no answer
        return None
    silence.spoke(peer)
    own = node_id_of(response.peer.node_id)
    if own is not None:
        # Its entrance is how a node that has lost everybody finds back.
        await protocol.update_routing_table(own, peer, responded=True)
    return frozenset(str(PeerID(raw)) for result in response.results for raw in result.nearest_peer_ids)


async def _knock(address: str) -> tuple[tuple[str, str] | None, str]:
    """Where connecting ended before libp2p has a say, or None where it did not; and the address family."""
    parts = list(Multiaddr(address).items())
    kind, host = parts[0][0].name, str(parts[0][1])
    port = next((int(value) for protocol, value in parts if protocol.name == "tcp"), None)
    if port is None or kind not in ("ip4", "ip6", *_NAMES) or "p2p-circuit" in address:
        return None, _family(kind, None)
    return await _listens(kind, host, port)


async def _listens(kind: str, host: str, port: int) -> tuple[tuple[str, str] | None, str]:
    """Where connecting ended, or None where something listens; and the address family."""
    loop = asyncio.get_running_loop()
    family = _NAMES.get(kind, socket.AF_INET6 if kind == "ip6" else socket.AF_INET)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            family = found[0][0]
            _, writer = await asyncio.open_connection(host, port, family=family)
            writer.close()
    except socket.gaierror as error:
        return ("dns", f"its name does not resolve ({error.strerror})"), _family(kind, family)
    except TimeoutError:
        return ("tcp", f"nothing answers there within {TIMEOUT_S:g} s"), _family(kind, family)
    except OSError as error:
        return ("tcp", error.strerror or type(error).__name__), _family(kind, family)
    return None, _family(kind, family)


def _family(kind: str, family: int | None) -> str:
    if family is not None:
        return "IPv6" if family == socket.AF_INET6 else "IPv4" if family == socket.AF_INET else kind
    return {"ip4": "IPv4", "ip6": "IPv6"}.get(kind, kind)
