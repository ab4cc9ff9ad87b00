"""One peer of the swarm: a p2pd daemon, a DHT node on it, and whether they still work.

A dead or frozen p2pd answers wrongly and in silence: unknown keys come back empty at once, known ones with old values. So
`check_alive` must succeed before what is read counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, P2PDaemonError
from hivemind.utils.multiaddr import Multiaddr

from swarm.dht.addresses import peer_id_of, refuse_taken_port
from swarm.dht.given_up import outlive_late_answers
from swarm.dht.tolerant import TolerantSerializer
from swarm.errors import LocalError, Unreachable

LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)
HEALTH_TIMEOUT_S = 5.0
"""A p2pd on this machine answers in milliseconds."""
STOP_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class NodeConfig:
    """`port_mapping` asks the local network's gateway to open a port (UPnP, NAT-PMP); `relay` lets peers behind a NAT be
    reached through others. Both are off unless an operator wants them: no traffic beyond the addresses given."""

    initial_peers: tuple[str, ...] = ()
    listen: tuple[str, ...] = LOOPBACK
    announce: tuple[str, ...] = ()
    client_mode: bool = False
    identity_path: Path | None = None
    port_mapping: bool = False
    relay: bool = False


@dataclass
class Node:
    """A running peer. Made by `start_node`, ended by `stop`."""

    config: NodeConfig
    p2p: P2P
    dht: DHTNode

    @property
    def peer_id(self) -> str:
        return str(self.p2p.peer_id.to_base58())

    async def addresses(self) -> tuple[str, ...]:
        """Where others can reach this peer, each with its peer id."""
        visible = await self.p2p.get_visible_maddrs()
        return tuple(str(address) for address in visible)

    async def check_alive(self) -> None:
        """Raises Unreachable where p2pd does not answer, or where a node with bootstrap peers knows nobody any more."""
        await self.connected_addresses()
        if self.config.initial_peers and not self.known_peers():
            raise Unreachable("the routing table is empty: no peer of the swarm is known any more")

    async def connected_addresses(self) -> tuple[str, ...]:
        """Where p2pd's present connections lead, each address with its peer id. Unreachable where p2pd is dead or frozen, or
        where nothing reads its answers: every call then runs into its time limit, while this question, over a connection of its
        own, is answered."""
        reads = self.p2p._client.control._read_task
        if reads is None or reads.done():
            raise Unreachable("p2pd's answers are not read any more")
        try:
            peers = await asyncio.wait_for(self.p2p.list_peers(), HEALTH_TIMEOUT_S)
        except (TimeoutError, OSError, ControlFailure, P2PDaemonError) as error:
            raise Unreachable(f"p2pd does not answer ({type(error).__name__})") from error
        return tuple(f"{address}/p2p/{peer.peer_id.to_base58()}" for peer in peers for address in peer.addrs)

    def known_peers(self) -> frozenset[str]:
        """Who stands in the DHT's routing table."""
        return frozenset(str(peer.to_base58()) for peer in self.dht.protocol.routing_table.uid_to_peer_id.values())

    async def rejoin(self, timeout_s: float = 5.0, passing_over: Container[PeerID] = ()) -> frozenset[str]:
        """Dials the bootstrap peers that the routing table lacks, at the addresses given at the start; who answered. Those
        to be passed over are not dialled.

        A bootstrap peer that was restarted knows nobody until somebody calls, and libp2p forgets addresses in a few minutes.
        """
        known = {*self.known_peers(), self.peer_id}
        addressed = [(peer_id_of(address), address) for address in self.config.initial_peers]
        lacking = [a for who, a in addressed if who not in known and PeerID.from_base58(who) not in passing_over]

        async def answers(address: str) -> bool:
            peer = PeerID.from_base58(peer_id_of(address))
            try:
                async with asyncio.timeout(timeout_s):
                    await self.p2p._client.connect(peer, [Multiaddr(address).decapsulate(f"/p2p/{peer_id_of(address)}")])
                    return await self.dht.protocol.call_ping(peer, validate=False) is not None
            except (TimeoutError, OSError, ControlFailure, P2PDaemonError):
                return False

        answered = await asyncio.gather(*map(answers, lacking))
        return frozenset(peer_id_of(address) for address, ok in zip(lacking, answered, strict=True) if ok)

    async def stop(self) -> None:
        """Within a few seconds, also where p2pd is dead or frozen: it is then asked in vain, and killed."""
        for step in (self.dht.shutdown, self.p2p.shutdown):
            with contextlib.suppress(TimeoutError, OSError, ControlFailure, P2PDaemonError):
                await asyncio.wait_for(step(), STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Ends p2pd at once. A frozen one answers no request to end."""
        daemon = self.p2p._child
        if daemon is not None and daemon.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                daemon.kill()


async def start_node(config: NodeConfig) -> Node:
    """Joins the swarm. Raises LocalError where p2pd cannot start here, Unreachable where no bootstrap peer answers."""
    for address in config.listen:
        refuse_taken_port(address)
    if config.identity_path is not None:
        make_identity(config.identity_path)
    try:
        p2p = await P2P.create(
            initial_peers=list(config.initial_peers) or None,
            host_maddrs=list(config.listen),
            announce_maddrs=list(config.announce) or None,
            dht_mode="client" if config.client_mode else "server",
            identity_path=str(config.identity_path) if config.identity_path else None,
            nat_port_map=config.port_mapping,
            use_relay=config.relay,
            use_auto_relay=config.relay,
            auto_nat=config.relay,
            # The check starts a second p2pd with port mapping on, and so talks to the gateway whatever we asked for.
            check_if_identity_free=False,
        )
    except (P2PDaemonError, OSError) as error:
        raise _explained(error, config) from error
    outlive_late_answers(p2p)
    try:
        dht = await DHTNode.create(
            p2p,
            initial_peers=list(config.initial_peers) or None,
            client_mode=config.client_mode,
            num_workers=32,
            cache_locally=False,
            cache_on_store=False,
            cache_nearest=0,
            ensure_bootstrap_success=True,
            strict=False,
        )
    except RuntimeError as error:
        await p2p.shutdown()
        raise Unreachable(_nobody_answers(config.initial_peers)) from error
    dht.protocol.serializer = TolerantSerializer
    return Node(config, p2p, dht)


def make_identity(path: Path) -> None:
    """A new private key at `path`, readable by its owner only, unless the file is there. LocalError where it cannot be made."""
    if path.exists():
        return
    partial = path.with_name(path.name + ".partial")
    try:
        partial.touch(mode=0o600)
        P2P.generate_identity(str(partial))
        partial.replace(path)
    except OSError as error:
        raise LocalError(f"the identity cannot be kept in {path}: {error.strerror or error}") from error


ALONE = ("failed to connect to bootstrap peers", "failed to find any peer in table")
"""What p2pd says last where it finds nobody: at once, or when it was given up while it still looked."""


def _explained(error: Exception, config: NodeConfig) -> Exception:
    text = str(error)
    if any(words in text for words in ALONE):
        return Unreachable(_nobody_answers(config.initial_peers))
    if "failed to listen" in text:
        return LocalError(f"cannot listen on {', '.join(config.listen)}; is the address this machine's own?")
    return LocalError(f"p2pd, libp2p's daemon, did not start: {text[:300]}")


def _nobody_answers(initial_peers: Sequence[str]) -> str:
    listed = ", ".join(initial_peers)
    return f"no bootstrap peer answers ({listed}). Is it running, is the address right, and may this machine reach it?"
