"""May this server go ONLINE? Others are asked whether they can dial it: peers of the swarm, as Petals' servers do, and the
coordinator's site. Whoever cannot answer is skipped: a lost monitor keeps nobody from serving.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass

import httpx
from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PDaemonError, P2PHandlerError
from hivemind.proto import dht_pb2

from swarm.dht.node import Node
from swarm.errors import Unreachable
from swarm.wire.text import clean_text

log = logging.getLogger(__name__)

PEERS_ASKED = 5
PEER_TIMEOUT_S = 12.0
"""A peer dials for up to 8 s before it answers."""
MONITOR_TIMEOUT_S = 10.0
"""As Petals' servers; a site answers after 9 s at the latest."""
FIRST_RETRY_S = 2.0
MAX_RETRY_S = 15.0
"""As Petals' servers: a relay or a port mapping may take a while."""

_CHECK_RPC = "ReachabilityProtocol.rpc_check"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`direct` is None where no peer could say. `refusal` is the site's reason where it could not reach this server."""

    direct: bool | None
    refusal: str | None = None

    @property
    def reachable(self) -> bool:
        """The site dials as a client does, over a relay too, so its word goes before that of peers."""
        return self.refusal is None and self.direct is not False

    def in_words(self) -> str:
        if self.refusal is not None:
            return f"the coordinator's site could not reach it: {self.refusal}"
        if self.direct is None:
            return "nobody was there to ask whether it can be reached"
        return "peers reach it directly" if self.direct else "peers cannot reach it directly"


async def wait_until_reachable(node: Node, site: str | None, *, relay: bool, within_s: float) -> Verdict:
    """The verdict with which this server may go ONLINE; Unreachable where there is none within that time.

    With `relay`, a server that peers cannot dial directly may go ONLINE, unless the site could not reach it either way.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + within_s
    pause = FIRST_RETRY_S
    while True:
        verdict = await check(node, site)
        if verdict.reachable or (relay and verdict.refusal is None):
            return verdict
        if loop.time() + pause > give_up:
            raise Unreachable(
                f"this server cannot be reached from outside ({verdict.in_words()}). Open its TCP port in the firewall and "
                "forward it (--port gives it a fixed one, --public-ip says the outer address), or serve through a relay "
                "(--relay). `sepal doctor` checks the port"
            )
        log.warning("not reachable yet: %s; asking again in %.0f s", verdict.in_words(), pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_RETRY_S)


async def check(node: Node, site: str | None) -> Verdict:
    answers, refusal = await asyncio.gather(ask_peers(node), ask_site(site, node.peer_id))
    return Verdict(direct=2 * sum(answers) >= len(answers) if answers else None, refusal=refusal)


async def ask_peers(node: Node, count: int = PEERS_ASKED) -> list[bool]:
    """What up to `count` peers of the routing table say; those that do not answer, or do not know the question, say nothing."""
    known = sorted(node.known_peers() - {node.peer_id})
    chosen = random.sample(known, min(count, len(known)))
    request = dht_pb2.PingRequest(peer=dht_pb2.NodeInfo(node_id=node.p2p.peer_id.to_bytes()))

    async def ask(peer_id: str) -> bool | None:
        call = node.p2p.call_protobuf_handler(PeerID.from_base58(peer_id), _CHECK_RPC, request, dht_pb2.PingResponse)
        try:
            response = await asyncio.wait_for(call, PEER_TIMEOUT_S)
        except (TimeoutError, OSError, P2PHandlerError, P2PDaemonError, ControlFailure, DispatchFailure):
            return None
        return bool(response.available)

    said = await asyncio.gather(*map(ask, chosen))
    return [answer for answer in said if answer is not None]


async def ask_site(site: str | None, peer_id: str) -> str | None:
    """The site's reason where it could not reach this server; None where it could, or where it cannot say."""
    if site is None:
        return None
    try:
        async with httpx.AsyncClient(timeout=MONITOR_TIMEOUT_S) as http:
            response = await http.get(f"{site.rstrip('/')}/api/v1/is_reachable/{peer_id}")
            response.raise_for_status()
            answer = response.json()
            if answer["success"]:
                return None
            return clean_text(answer.get("message"), 300) or "no reason given"
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.info("the site could not be asked whether it reaches this server (%s); going on", type(error).__name__)
        return None
