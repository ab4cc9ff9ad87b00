"""A DHT that strangers write to as they please: good records stand beside bad ones under the same keys, and none is lost."""

from __future__ import annotations

import pytest
from hivemind.dht.routing import DHTID
from hivemind.utils import get_dht_time

from swarm.claims import read_servers
from swarm.dht.declare import declare_model, declare_server
from swarm.dht.node import Node
from swarm.dht.reading import read_blocks, read_keys
from swarm.errors import BadRecord
from swarm.snapshot import Entry, Reading, read_index
from swarm.wire.codec import decode, encode
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord, ServerRecord, ServerState, parse_server_record
from swarm.wire.spans import Span
from tests.loopback import nodes, plant, reader_of
from tests.swarm.malformed import GOOD, malformed, mutated
from tests.swarms import peer_id

WHOLE = Span(0, 4)
RECORD = ServerRecord(ServerState.ONLINE, 10.0, WHOLE)
MALFORMED = malformed()


def test_there_are_three_hundred_distinct_malformed_records_and_each_is_refused() -> None:
    assert len(MALFORMED) >= 300
    accepted = []
    for name, value in MALFORMED.items():
        try:
            parse_server_record(decode(value))
        except BadRecord:
            continue
        accepted.append(name)
    assert accepted == []


def strewn(values: list[bytes]) -> Reading:
    """The values under the keys of a good server's blocks, as the reader would hand them on."""
    entries: dict[str, list[Entry]] = {f"m.{block}": [Entry(peer_id("good"), RECORD.to_wire(), 60.0)] for block in WHOLE}
    for n, value in enumerate(values):
        try:
            decoded: object = decode(value)
        except BadRecord as error:
            decoded = error
        entries[f"m.{n % 4}"].append(Entry(peer_id(f"bad {n}"), decoded, 60.0))
    return Reading(entries)


def test_ten_thousand_mutated_records_cost_no_good_one() -> None:
    values = list(mutated(seed=17, count=10_000))
    servers, dropped = read_servers("m", 4, strewn(values), 0.0)
    assert servers[peer_id("good")][:2] == (RECORD, WHOLE)
    assert len(dropped) + len(servers) - 1 == len(values), "each is either understood or counted"
    assert len(dropped) > 5_000
    for record, span, *_ in servers.values():
        assert WHOLE.covers(span) and parse_server_record(record.to_wire()) == record


async def flood(writer: Node, at: Node, key: str, records: dict[object, bytes], life_s: float = 60.0) -> None:
    """Stores many subkeys of one key at one node, some hundred a call."""
    dht_id, listed = DHTID.generate(key), list(records.items())
    for start in range(0, len(listed), 300):
        part = listed[start : start + 300]
        stored = await writer.dht.protocol.call_store(
            at.p2p.peer_id,
            [dht_id] * len(part),
            [value for _, value in part],
            [get_dht_time() + life_s] * len(part),
            [subkey for subkey, _ in part],
        )
        assert stored and all(stored)


async def test_three_hundred_malformed_records_in_a_real_dht_cost_no_good_one() -> None:
    async with nodes(3) as (boot, server, stranger), reader_of(boot) as reader:
        assert await declare_server(server, "m", WHOLE, RECORD, 60.0) == 4
        for at in (boot, server):
            await flood(stranger, at, "m.1", {peer_id(name): value for name, value in MALFORMED.items()})
        reading = (await read_blocks(reader, {"m": 4}, timeout_s=20))["m"]
        servers, dropped = read_servers("m", 4, reading, 0.0)
        assert list(servers) == [server.peer_id] and servers[server.peer_id][:2] == (RECORD, WHOLE)
        assert len(dropped) == len(MALFORMED) and reading.unread == frozenset()


async def test_thousands_of_subkeys_under_one_key_cost_no_good_one() -> None:
    async with nodes(3) as (boot, server, stranger), reader_of(boot) as reader:
        await declare_server(server, "m", WHOLE, RECORD, 60.0)
        forged = encode((2, 1.0, {"start_block": 2, "end_block": 3}))
        for at in (boot, server):
            await flood(
                stranger, at, "m.2", {**{f"junk {n}": b"\xc0" for n in range(3_000)}, **dict.fromkeys(range(1000), b"\xc0")}
            )
            await flood(stranger, at, "m.2", {peer_id(f"forged {n}"): forged for n in range(1_000)})
        reading = (await read_blocks(reader, {"m": 4}, timeout_s=20))["m"]
        servers, dropped = read_servers("m", 4, reading, 0.0)
        assert reading.unread == frozenset()
        assert servers[server.peer_id][:2] == (RECORD, WHOLE) and len(servers) == 1_001
        assert len(dropped) == 4_000


@pytest.mark.slow
async def test_keys_too_large_to_be_sent_are_unread_and_cost_neither_the_others_nor_the_routing_table() -> None:
    """30 keys of 1 MB each: a Petals monitor dropped every node for them, and saw an empty swarm from then on."""
    async with nodes(3) as (boot, server, stranger), reader_of(boot) as reader:
        await declare_server(server, "m", WHOLE, RECORD, 60.0)
        for block in range(30):
            for at in (boot, server, stranger):
                writer = boot if at is stranger else stranger
                assert await plant(writer, at, f"big.{block}", "fat", b"\xc6\x00\x0f\xff\x00" + b"x" * 1_048_320)
        readings = await read_blocks(reader, {"m": 4, "big": 30}, timeout_s=30)
        servers, _ = read_servers("m", 4, readings["m"], 0.0)
        assert servers[server.peer_id][:2] == (RECORD, WHOLE) and readings["m"].unread == frozenset()
        _, dropped = read_servers("big", 30, readings["big"], 0.0)
        assert len(dropped) + len(readings["big"].unread) == 30
        await reader.check_alive()
        assert len(reader.dht.protocol.routing_table.uid_to_peer_id) == 3


@pytest.mark.parametrize(
    ("claimed", "seen"),
    [((20, 5), None), ((5, 5), None), ((1_000_000, 1_000_001), None), ((0, 2_048), Span(1, 3)), ((0, 2), Span(1, 2))],
)
async def test_a_claim_is_refused_or_clipped_to_the_keys_that_it_stands_under(
    claimed: tuple[int, int], seen: Span | None
) -> None:
    value = encode((2, 1.0, {"start_block": claimed[0], "end_block": claimed[1], "inference_rps": 0.0, "version": '2"\nx 1'}))
    async with nodes(2) as (boot, server), reader_of(boot) as reader:
        await declare_server(server, "m", WHOLE, RECORD, 60.0)
        for block in (1, 2):
            assert await plant(server, boot, f"m.{block}", peer_id("liar"), value)
        servers, dropped = read_servers("m", 4, (await read_blocks(reader, {"m": 4}))["m"], 0.0)
        assert servers[server.peer_id][1] == WHOLE
        if seen is None:
            assert peer_id("liar") not in servers and {record.reason for record in dropped} == {"span"}
        else:
            record, span, *_ = servers[peer_id("liar")]
            assert span == seen and record.inference_rps is None and record.version == '2" x 1'


async def test_a_plain_value_that_replaces_a_key_at_one_node_leaves_what_the_others_hold() -> None:
    async with nodes(3) as (boot, server, stranger), reader_of(boot) as reader:
        await declare_server(server, "m", WHOLE, RECORD, 60.0)
        assert await plant(stranger, boot, "m.0", None, encode(5), life_s=600.0)
        servers, dropped = read_servers("m", 4, (await read_blocks(reader, {"m": 4}))["m"], 0.0)
        assert servers[server.peer_id][1] == WHOLE and [record.reason for record in dropped] == ["shape"]


async def test_bad_entries_of_the_index_cost_only_themselves_and_conflicts_are_shown() -> None:
    record = ModelRecord(32, "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct")
    prefix = "Llama-3-1-8B-Instruct-hf"
    async with nodes(3) as (boot, server, stranger), reader_of(boot) as reader:
        assert await declare_model(server, prefix, record, 60.0)
        assert await declare_model(server, "small", ModelRecord(4, None), 60.0)
        assert await plant(stranger, boot, MODELS_KEY, prefix, encode([32, "https://…"]), life_s=120.0)
        for subkey, blocks in (("with.dot", 3), ("with space", 3), ("huge", 20_000), ("", 3)):
            assert await plant(stranger, boot, MODELS_KEY, subkey, encode({"num_blocks": blocks, "repository": None}))
        assert await plant(stranger, boot, MODELS_KEY, 7, encode({"num_blocks": 3, "repository": None}))
        index = read_index(await read_keys(reader, [MODELS_KEY]))
        assert index.models == {prefix: record, "small": ModelRecord(4, None)}
        assert set(index.conflicts) == {prefix} and index.unsized == {"huge"}
        assert sorted(dropped.reason for dropped in index.dropped) == [
            "model-size",
            "prefix",
            "prefix",
            "prefix",
            "prefix",
            "shape",
        ]


@pytest.mark.parametrize("years", [600.0, 3.15e8], ids=["ten minutes", "ten years"])
async def test_a_forged_record_with_a_later_expiry_stands_for_minutes_at_most(years: float) -> None:
    async with nodes(2) as (boot, server), reader_of(boot) as reader:
        await declare_server(server, "m", WHOLE, RECORD, 60.0)
        forged = encode((0, 1.0, {**GOOD[2]}))
        for at in (boot, server):
            assert await plant(boot if at is server else server, at, "m.0", server.peer_id, forged, life_s=years)
        now = get_dht_time()
        servers, _ = read_servers("m", 4, (await read_blocks(reader, {"m": 4}))["m"], now)
        record, _, expires_at, _ = servers[server.peer_id]
        assert record.state is ServerState.OFFLINE and expires_at - now <= 900
