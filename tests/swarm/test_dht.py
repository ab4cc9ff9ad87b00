"""Reading a real DHT on loopback, with strangers writing to it."""

from __future__ import annotations

import asyncio
import os
import signal

import msgpack
import pytest
from hivemind.p2p import P2P, P2PContext, ServicerBase
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError
from hivemind.proto import runtime_pb2

from swarm.claims import read_servers
from swarm.dht.addresses import parse_listen_addresses, parse_peer_addresses
from swarm.dht.declare import declare_model, declare_server, record_life_s
from swarm.dht.node import NodeConfig, start_node
from swarm.dht.probe import dial, visit
from swarm.dht.reading import read_blocks, read_index, read_keys
from swarm.errors import LocalError, Unreachable
from swarm.snapshot import Outcome, PeerState
from swarm.wire.codec import encode
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.loopback import nodes, plant, reader_of
from tests.swarms import peer_id

RECORD = ServerRecord(ServerState.ONLINE, 10.0, Span(0, 4), version="sepal", cache_tokens_left=100)


class TransformerConnectionHandler(ServicerBase):
    """Answers rpc_info for some blocks, as a Petals server does."""

    def __init__(self, held: set[str]) -> None:
        self.held = held
        self.more: dict[str, object] = {}

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        if request.uid and request.uid not in self.held:
            raise KeyError(request.uid)
        return runtime_pb2.ExpertInfo(serialized_info=encode({"version": "2.3.0", "cache_tokens_available": 12, **self.more}))


async def test_what_a_server_declares_is_what_a_reader_reads() -> None:
    async with nodes(3) as (boot, server, _), reader_of(boot) as reader:
        assert await declare_server(server, "m", Span(0, 4), RECORD, record_life_s(120)) == 4
        assert await declare_model(server, "m", ModelRecord(6, None), 60.0)
        models, dropped, readable = await read_index(reader)
        assert (models, dropped, readable) == ({"m": ModelRecord(6, None)}, [], True)
        reading = (await read_blocks(reader, {"m": 6}))["m"]
        assert reading.unread == frozenset()
        servers, _ = read_servers("m", 6, reading, 0.0)
        assert servers[server.peer_id][:2] == (RECORD, Span(0, 4))


async def test_a_private_prefix_is_kept_out_of_the_index() -> None:
    async with nodes(2) as (boot, server), reader_of(boot) as reader:
        assert not await declare_model(server, "_mine", ModelRecord(6, None), 60.0)
        assert (await read_index(reader))[0] == {}


BAD_VALUES = {
    "no msgpack": b"\xc1garbage",
    "nested 2,000 deep": b"\x91" * 2_000 + b"\x01",
    "int key": msgpack.packb({1: 2}),
    "cut": encode((2, 1.0, {"public_name": "x" * 50}))[:-3],
    "foreign extension": msgpack.packb(msgpack.ExtType(9, b"x")),
    "large": b"\xc4" * 20_000,
    "int throughput": encode((2, 1, {})),
    "reversed span": encode((2, 1.0, {"start_block": 20, "end_block": 5})),
}


async def test_bad_records_beside_good_ones_are_dropped_alone_and_no_look_up_hangs() -> None:
    async with nodes(3) as (boot, server, stranger), reader_of(boot) as reader:
        await declare_server(server, "m", Span(0, 4), RECORD, 60.0)
        await declare_model(server, "m", ModelRecord(4, None), 60.0)
        for at in (boot, server):
            for name, value in BAD_VALUES.items():
                await plant(stranger, at, "m.1", peer_id(name), value)
            await plant(stranger, at, "m.1", 7, RECORD.to_wire()[2]["version"].encode())
            await plant(stranger, at, "m.2", "no peer id", encode(RECORD.to_wire()))
            await plant(stranger, at, MODELS_KEY, "with.dot", encode({"num_blocks": 3, "repository": None}))
            await plant(stranger, at, MODELS_KEY, "huge", encode({"num_blocks": 20_000, "repository": None}))
        models, dropped, _ = await read_index(reader, timeout_s=10)
        assert list(models) == ["m"]
        assert sorted(d.reason for d in dropped) == ["model-size", "prefix"]
        reading = (await read_blocks(reader, {"m": 4}, timeout_s=10))["m"]
        assert reading.unread == frozenset()
        servers, bad = read_servers("m", 4, reading, 0.0)
        assert servers[server.peer_id][1] == Span(0, 4)
        assert list(servers) == [server.peer_id]
        assert {d.reason for d in bad} == {"undecodable", "too-large", "throughput", "span", "subkey"}
        assert len(bad) == len(BAD_VALUES) + 2


async def test_a_plain_value_in_the_place_of_a_dictionary_is_dropped_with_its_reason() -> None:
    async with nodes(2) as (boot, stranger), reader_of(boot) as reader:
        assert await plant(stranger, boot, "m.0", None, encode(5))
        _, bad = read_servers("m", 1, await read_keys(reader, ["m.0"], 10), 0.0)
        assert [d.reason for d in bad] == ["shape"]


async def test_keys_that_nobody_answers_for_are_unread_and_not_empty() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        assert (await read_keys(reader, ["m.0"])).unread == frozenset()
        os.kill(boot.p2p._child.pid, signal.SIGKILL)
        assert (await read_keys(reader, ["m.0"])).unread == {"m.0"}
        models, _, readable = await read_index(reader)
        assert (models, readable) == ({}, False)
        with pytest.raises(Unreachable, match="routing table is empty"):
            await reader.check_alive()


async def test_a_dead_p2pd_is_noticed_before_its_silence_is_taken_for_an_empty_swarm() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        await reader.check_alive()
        os.kill(reader.p2p._child.pid, signal.SIGKILL)
        with pytest.raises(Unreachable, match="p2pd does not answer"):
            await reader.check_alive()


async def test_a_p2pd_whose_answers_nobody_reads_is_noticed_though_it_lives() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        control = reader.p2p._client.control
        control._read_task.cancel()
        await asyncio.wait({control._read_task})
        with pytest.raises(Unreachable, match="not read any more"):
            await reader.check_alive()


async def test_a_visit_asks_for_both_edges_of_a_claimed_span() -> None:
    async with nodes(2) as (boot, server), reader_of(boot) as reader:
        handler = TransformerConnectionHandler({f"m.{block}" for block in range(4)})
        await handler.add_p2p_handlers(server.p2p)
        good = await visit(reader.p2p, server.peer_id, "m", Span(0, 4))
        assert (good.outcome, good.version, good.cache_tokens_left) == (Outcome.ANSWERED, "2.3.0", 12)
        assert good.said is None, "Petals' servers do not say their state"
        for word, said in (
            ("joining", PeerState.JOINING),
            ("leaving", PeerState.LEAVING),
            ("online", None),
            (["leaving"], None),
        ):
            handler.more = {"state": word}
            assert (await visit(reader.p2p, server.peer_id, "m", Span(0, 4))).said is said
        assert (await visit(reader.p2p, server.peer_id, "m", Span(0, 6))).outcome is Outcome.NOT_HELD
        assert (await dial(reader.p2p, server.peer_id)).outcome is Outcome.ANSWERED


async def test_a_peer_without_blocks_was_reached_and_a_stranger_was_not() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        assert (await dial(reader.p2p, boot.peer_id)).outcome is Outcome.PROTOCOL_ABSENT
        nobody = await dial(reader.p2p, peer_id("nobody"))
        assert nobody.outcome in (Outcome.NO_ADDRESS, Outcome.REFUSED)
        assert nobody.detail


async def test_a_bootstrap_peer_that_is_not_there_is_named() -> None:
    address = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_id('nobody')}"
    with pytest.raises(Unreachable, match="/ip4/127\\.0\\.0\\.1/tcp/9/"):
        await start_node(NodeConfig(initial_peers=(address,)))


async def test_a_p2pd_that_was_given_up_while_it_looked_for_somebody_found_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last line is then of its routing table, which says nothing to whoever starts a server."""

    async def gives_up(*_: object, **__: object) -> None:
        raise P2PDaemonError("Daemon failed to start: failed to query for self, err=failed to find any peer in table")

    monkeypatch.setattr(P2P, "create", gives_up)
    with pytest.raises(Unreachable, match="no bootstrap peer answers"):
        await start_node(NodeConfig(initial_peers=("/ip4/127.0.0.1/tcp/1/p2p/" + peer_id("x"),)))


async def test_a_port_that_is_taken_is_named() -> None:
    async with nodes(1) as (boot,):
        taken = (await boot.addresses())[0].rsplit("/p2p/", 1)[0]
        with pytest.raises(LocalError, match="Choose another port"):
            await start_node(NodeConfig(listen=(taken,)))


PEER = "QmReoWRnHVunantaNUTKibAqX3YyYyzktiSf6U9j47i3Hh"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"/ip/172.16.0.2/tcp/31337/p2p/{PEER}", "address 1, .*Unknown Protocol at /ip"),
        (f"/ip4/10.0.0.1/tcp/1/p2p/{PEER} / ip4/127.0.0.1/tcp/31337/p2p/Qm", "address 2, '/'"),
        (f"/ip4/10.0.0.1/tcp/1/p2p/{PEER}/ip4/127.0.0.1/tcp/2/p2p/{PEER}", "two addresses glued together"),
        ("/ip4/10.0.0.1/tcp/99999/p2p/x", "at /tcp"),
        ("/ip4/10.0.0.1/tcp/31330", "must end in /p2p/PEER_ID"),
        ("127.0.0.1:31330", "Must begin with /"),
    ],
)
def test_a_mistyped_address_is_named_with_its_position_and_fault(text: str, fault: str) -> None:
    with pytest.raises(LocalError, match=fault):
        parse_peer_addresses([text])


def test_good_addresses_are_understood_in_one_text_or_several() -> None:
    first, second = f"/ip4/10.0.0.1/tcp/1/p2p/{PEER}", f"/dns4/a.example/tcp/2/p2p/{PEER}"
    assert parse_peer_addresses([f"{first}, {second}"]) == parse_peer_addresses([first, second]) == (first, second)
    assert parse_listen_addresses(["/ip4/0.0.0.0/tcp/31330"]) == ("/ip4/0.0.0.0/tcp/31330",)
