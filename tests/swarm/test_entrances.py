"""Bootstrap peers, address by address, and swarms that fell apart."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace

import pytest
from hivemind.utils.multiaddr import Multiaddr

from swarm.dht import entrances, scout
from swarm.dht.canary import sings
from swarm.dht.node import NodeConfig, start_node
from swarm.dht.routes import Connection, kind_of, network_of, printable, quoted_addresses, routes
from swarm.snapshot import AddressState
from tests.loopback import nodes, reader_of
from tests.swarms import peer_id


async def test_each_address_says_how_far_a_query_through_it_came() -> None:
    async with nodes(2) as (boot, other):
        good = (await boot.addresses())[0]
        dead_port = f"/ip4/127.0.0.1/tcp/1/p2p/{boot.peer_id}"
        over_ipv6 = f"/ip6/::1/tcp/1/p2p/{boot.peer_id}"
        nameless = f"/dns4/no-such-host.invalid/tcp/31337/p2p/{peer_id('named')}"
        stranger = (await other.addresses())[0].replace(other.peer_id, peer_id("stranger"))
        config = NodeConfig(initial_peers=(good, dead_port, over_ipv6, nameless, stranger), client_mode=True)
        reader = await start_node(config)
        try:
            states, split = await entrances.look(reader)
        finally:
            await reader.stop()
        assert [(state.family, state.step) for state in states] == [
            ("IPv4", "ok"),
            ("IPv4", "tcp"),
            ("IPv6", "tcp"),
            ("IPv4", "dns"),
            ("IPv4", "dht"),
        ]
        assert entrances.peers_up(states) == {boot.peer_id: True, peer_id("named"): False, peer_id("stranger"): False}
        assert split == "" and states[1].detail and "does not resolve" in states[3].detail


async def test_an_address_at_which_another_peer_listens_is_no_entrance_though_its_peer_answers_elsewhere() -> None:
    """Only a query over just that address shows it: the common connection to the peer is fine."""
    async with nodes(2) as (boot, other):
        good = (await boot.addresses())[0]
        wrong = (await other.addresses())[0].replace(other.peer_id, boot.peer_id)
        reader = await start_node(NodeConfig(initial_peers=(good, wrong), client_mode=True))
        try:
            states, _ = await entrances.look(reader)
        finally:
            await reader.stop()
        assert [(state.step, state.detail) for state in states] == [("ok", ""), ("dht", "another peer answers there")]


async def test_ipv4_and_ipv6_of_one_peer_are_asked_apart() -> None:
    """On a machine without IPv6 the second address is one at which nothing can be reached, and says so."""
    listen = ("/ip4/127.0.0.1/tcp/0", *(("/ip6/::1/tcp/0",) if _has_ipv6() else ()))
    boot = await start_node(NodeConfig(listen=listen))
    reader = None
    try:
        addresses = await boot.addresses()
        six = next((a for a in addresses if a.startswith("/ip6/")), f"/ip6/::1/tcp/9/p2p/{boot.peer_id}")
        four = next(a for a in addresses if a.startswith("/ip4/"))
        reader = await start_node(NodeConfig(initial_peers=(four, six), client_mode=True))
        states, _ = await entrances.look(reader)
        assert [(s.family, s.step) for s in states] == [("IPv4", "ok"), ("IPv6", "ok" if _has_ipv6() else "tcp")]
    finally:
        if reader is not None:
            await reader.stop()
        await boot.stop()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_a_query_over_one_address_stands_for_a_while_unless_the_peer_falls_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    found = entrances.Found(True)

    async def ask(address: str, relay: bool) -> entrances.Found:
        asked.append(address)
        return found

    monkeypatch.setattr(entrances, "ask_through", ask)
    scouts, now = entrances.Scouts(), [0.0]

    async def look(answers: bool) -> bool | None:
        return (await scouts.ask("a", answers, False, lambda: now[0])).ok

    assert [await look(True), await look(True), len(asked)] == [True, True, 1]
    assert await look(False) and len(asked) == 2, "the peer is silent: look again at once"
    now[0], found = entrances.SCOUT_EVERY_S, entrances.Found(False, "no answer")
    assert [await look(True), await look(True), len(asked)] == [False, False, 3]
    now[0], found = now[0] + entrances.SCOUT_AGAIN_S, entrances.Found(None)
    assert [await look(True), await look(False), len(asked)] == [True, False, 5], "our own fault says nothing of the peer"


async def test_any_number_of_silent_addresses_costs_one_limit_and_each_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def silent(address: str, relay: bool) -> entrances.Found:
        tried.append(address)
        # As a p2pd whose time is over: the ones that were asked are known to be silent.
        await asyncio.sleep(0)
        now[0] += entrances.SCOUTS_BEGIN_WITHIN_S
        return entrances.Found(False, "no answer to a DHT query within 5 s")

    monkeypatch.setattr(entrances, "ask_through", silent)
    scouts, now = entrances.Scouts(), [0.0]
    answers = {f"address-{n:02}": n == 11 for n in range(12)}
    for look in range(1, 4):
        found = await scouts.ask_all(answers, False, lambda: now[0])
        assert len(found) == 12 and len(tried) <= entrances.SCOUTS_AT_ONCE * look, "the others keep their last finding"
    assert sorted(tried) == sorted(answers), "each once: whoever was tried longest ago comes first"


async def test_an_address_whose_turn_did_not_come_says_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrances, "SCOUTS_END_WITHIN_S", 0.05)
    never = asyncio.Event()

    async def hangs(address: str, relay: bool) -> entrances.Found:
        await never.wait()
        return entrances.Found(True)

    monkeypatch.setattr(entrances, "ask_through", hangs)
    scouts = entrances.Scouts({"was-up": (0.0, entrances.Found(True)), "was-down": (0.0, entrances.Found(False, "refused"))})
    now = entrances.SCOUT_EVERY_S + 1
    answers = {"was-up": True, "was-down": True, "new": True, "mute": False}
    found = await scouts.ask_all(answers, False, lambda: now)
    assert {address: told.ok for address, told in found.items()} == {
        "was-up": True,
        "was-down": False,
        "new": True,
        "mute": False,
    }
    assert found["was-up"].detail == "tried 301 s ago, and not again since"
    assert found["was-down"].detail == "refused; tried 301 s ago, and not again since"
    assert "not been tried by itself yet" in found["new"].detail and "no answer" in found["mute"].detail
    assert scouts.found["was-up"] == (0.0, entrances.Found(True)), "what nobody tried is not found anew"
    never.set()
    await asyncio.gather(*scouts.trying.values())
    found = await scouts.ask_all(answers, False, lambda: now)
    assert all(told == entrances.Found(True) for address, told in found.items() if address != "mute"), "late, but it counts"


@pytest.mark.slow
async def test_twelve_addresses_that_accept_and_stay_silent_do_not_hold_up_a_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real sockets and a real p2pd for each: three times four silences would be fifteen seconds and more."""
    monkeypatch.setattr(entrances, "SCOUTS_END_WITHIN_S", 3.0)
    servers = [await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) for _ in range(12)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    async with nodes(1) as (boot,):
        dead = [f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer_id(f'dead{port}')}" for port in ports]
        reader = await start_node(NodeConfig(initial_peers=await boot.addresses(), client_mode=True))
        reader.config = replace(reader.config, initial_peers=(*await boot.addresses(), *dead))
        try:
            limit_s = entrances.TIMEOUT_S + entrances.SCOUTS_END_WITHIN_S + scout.LIMIT_S
            scouts = entrances.Scouts()
            states, _ = await asyncio.wait_for(entrances.look(reader, scouts), limit_s)
            await asyncio.gather(*scouts.trying.values())
        finally:
            await reader.stop()
            for server in servers:
                server.close()
    assert [state.step for state in states] == ["ok", *["dht"] * 12]
    assert any("not been tried by itself yet" in state.detail for state in states)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/ip4/203.0.113.5/tcp/31337/p2p/Qm", "tcp/31337"),
        ("/ip6/2001:db8::5/udp/4001/quic-v1/p2p/Qm", "udp/4001/quic-v1"),
        ("/dns4/boot.example/tcp/1", "tcp/1"),
        ("/ip4/203.0.113.5/tcp/9/p2p/QmR/p2p-circuit/p2p/Qm", "tcp/9 through a relay"),
    ],
)
def test_an_address_is_shown_without_its_host(address: str, shown: str) -> None:
    assert AddressState(address, "Qm", "IPv4", "ok").endpoint == shown


@pytest.mark.slow
async def test_a_bootstrap_peer_that_dies_is_noticed_and_the_other_is_entrance_enough() -> None:
    async with nodes(2) as (boot, other):
        addresses = (*await boot.addresses(), *await other.addresses())
        reader = await start_node(NodeConfig(initial_peers=addresses, client_mode=True))
        try:
            assert entrances.peers_up((await entrances.look(reader))[0]) == {boot.peer_id: True, other.peer_id: True}
            os.kill(other.p2p._child.pid, signal.SIGKILL)
            states, split = await entrances.look(reader)
            assert entrances.peers_up(states) == {boot.peer_id: True, other.peer_id: False} and split == ""
            assert await sings(reader), "one entrance is enough to write and read"
        finally:
            await reader.stop()


@pytest.mark.slow
async def test_two_swarms_behind_one_list_of_entrances_are_noticed() -> None:
    async with nodes(2) as one, nodes(2) as two:
        addresses = (*await one[0].addresses(), *await two[0].addresses())
        reader = await start_node(NodeConfig(initial_peers=addresses, client_mode=True))
        try:
            _, split = await entrances.look(reader)
        finally:
            await reader.stop()
        assert "2 separate swarms" in split and one[0].peer_id[-6:] in split and two[0].peer_id[-6:] in split


@pytest.mark.parametrize(
    ("known", "groups"),
    [
        ({}, 0),
        ({"a": ()}, 0),
        ({"a": ("x",), "b": ("x",)}, 0),
        ({"a": ("b",), "b": ()}, 0),
        ({"a": ("x",), "b": ("y",), "c": ("x", "y")}, 0),
        ({"a": ("x",), "b": ("y",)}, 2),
        ({"a": (), "b": (), "c": ()}, 3),
    ],
)
def test_peers_that_share_an_acquaintance_are_in_one_swarm(known: dict[str, tuple[str, ...]], groups: int) -> None:
    told = entrances.split_between({peer: frozenset(peers) for peer, peers in known.items()})
    assert told.startswith(f"the bootstrap peers belong to {groups} separate swarms") if groups else told == ""


async def test_a_reader_that_is_cut_off_cannot_read_its_canary_back() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        assert await sings(reader)
        os.kill(boot.p2p._child.pid, signal.SIGKILL)
        assert not await sings(reader)


UNKNOWN_PROTOCOL = bytes.fromhex("040102030491020fa1ff7f")
QUIC = bytes.fromhex("040102030491020fa1cd03")


def test_an_address_that_cannot_be_printed_costs_itself_only() -> None:
    """A peer that announced a protocol which the library did not know once made every update fail."""
    addresses = [Multiaddr("/ip4/10.0.0.1/tcp/1"), Multiaddr(UNKNOWN_PROTOCOL), Multiaddr(QUIC), Multiaddr("/ip6/::1/tcp/2")]
    assert printable(addresses) == ["/ip4/10.0.0.1/tcp/1", "/ip4/1.2.3.4/udp/4001/quic-v1", "/ip6/::1/tcp/2"]


class MadeUpP2P:
    def __init__(self, **peers: list[bytes]) -> None:
        from hivemind.p2p import PeerID
        from hivemind.p2p.p2p_daemon_bindings.datastructures import PeerInfo

        self.peers = [PeerInfo(PeerID.from_base58(peer_id(name)), map(Multiaddr, given)) for name, given in peers.items()]

    async def list_peers(self) -> list[object]:
        return list(self.peers)


async def test_the_route_to_a_peer_is_known_whatever_else_it_announces() -> None:
    direct = Multiaddr("/ip4/10.0.0.1/tcp/1").to_bytes()
    relayed = Multiaddr(f"/ip4/10.0.0.2/tcp/1/p2p/{peer_id('relay')}/p2p-circuit").to_bytes()
    p2p = MadeUpP2P(a=[UNKNOWN_PROTOCOL, direct], b=[relayed], c=[relayed, direct], d=[UNKNOWN_PROTOCOL])
    found = await routes(p2p)  # type: ignore[arg-type]
    assert found == {
        peer_id("a"): Connection("direct"),
        peer_id("b"): Connection("relay"),
        peer_id("c"): Connection("direct"),
    }


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("/ip4/1.2.3.4/tcp/1", "1.2.3.0/24"),
        ("/ip6/2a00:1450:4001:80b::200e/tcp/1", "2a00:1450:4001::/48"),
        ("/ip4/127.0.0.1/tcp/1", ""),
        ("/ip4/192.168.1.9/tcp/1", ""),
        ("/ip6/::1/tcp/1", ""),
        ("/ip6/fe80::1%eth0/tcp/1", ""),
        ("/dns4/boot.example/tcp/1", ""),
        ("", ""),
    ],
)
def test_a_network_is_what_goes_down_together_and_private_ones_are_none(address: str, network: str) -> None:
    assert network_of(address) == network


async def test_behind_a_relay_the_network_is_the_relay_s_and_says_nothing() -> None:
    relayed = Multiaddr(f"/ip4/1.2.3.4/tcp/1/p2p/{peer_id('relay')}/p2p-circuit").to_bytes()
    found = await routes(MadeUpP2P(a=[relayed], b=[Multiaddr("/ip4/1.2.3.9/tcp/1").to_bytes()]))  # type: ignore[arg-type]
    assert (found[peer_id("a")].network, found[peer_id("b")].network) == ("", "1.2.3.0/24")


def test_addresses_that_were_dialled_are_taken_out_of_the_error() -> None:
    text = "failed to dial 12D3: all dials failed * [/ip4/10.0.0.1/tcp/1] dial tcp: refused * [/ip6/::1/tcp/2] timeout"
    assert quoted_addresses(text) == ("/ip4/10.0.0.1/tcp/1", "/ip6/::1/tcp/2")
    assert quoted_addresses("no addresses") == ()
    assert kind_of("/ip4/1.1.1.1/tcp/1/p2p/Qm/p2p-circuit/p2p/Qn") == "relay"


@pytest.mark.slow
async def test_the_canary_is_read_back_after_most_of_the_swarm_has_died() -> None:
    """Otherwise a loss that is real could never be published."""
    async with nodes(5) as (boot, *others), reader_of(boot) as reader:
        assert await sings(reader)
        for other in others:
            os.kill(other.p2p._child.pid, signal.SIGKILL)
        assert await sings(reader)
