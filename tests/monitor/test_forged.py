"""Strangers forge the records of real servers: what the servers themselves answer is what is shown."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from monitor.crawl import CrawlReport, crawl
from monitor.crawler import Crawler, NodeReader
from swarm.coverage import Verdict, coverage
from swarm.dht.background import BackgroundLoop
from swarm.dht.node import Node
from swarm.snapshot import PeerState, Server, Snapshot
from swarm.wire.codec import encode
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span
from tests.loopback import nodes, plant, reader_of
from tests.monitor.test_crawl import serve
from tests.swarms import peer_id


@dataclass
class Watched:
    """A swarm of one server for all six blocks, seen once as it is, and strangers at work since."""

    boot: Node
    alice: Node
    stranger: Node
    reader: Node
    first: Snapshot

    async def forge(self, value: object, blocks: Span, life_s: float = 600.0, subkey: str | None = None) -> None:
        for at, writer in ((self.boot, self.stranger), (self.alice, self.stranger), (self.stranger, self.boot)):
            for block in blocks:
                await plant(writer, at, f"m.{block}", subkey or self.alice.peer_id, encode(value), life_s)

    async def crawl(self) -> CrawlReport:
        known = {model.prefix: ModelRecord(model.num_blocks, model.repository) for model in self.first.models}
        return await crawl("main", NodeReader(self.reader), time.time, known, self.first)

    async def seen(self) -> Server:
        report = await self.crawl()
        assert report.snapshot is not None, report.failure
        (server,) = report.snapshot.models[0].servers
        assert coverage(report.snapshot.models[0]).verdict is Verdict.THIN, "alice serves every block, whatever is written"
        return server


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    async with nodes(3) as (boot, alice, stranger), reader_of(boot) as reader:
        await serve(alice, Span(0, 6), Span(0, 6))
        report = await crawl("main", NodeReader(reader), time.time, {})
        assert report.snapshot is not None and report.snapshot.models[0].servers[0].conflict == ""
        yield Watched(boot, alice, stranger, reader, report.snapshot)


@pytest.mark.parametrize(("state", "word"), [(0, "leaving"), (1, "joining")])
@pytest.mark.parametrize("life_s", [600.0, 3.15e8], ids=["ten minutes", "ten years"])
async def test_a_forged_state_counts_for_nothing_and_is_shown_as_a_conflict(state: int, word: str, life_s: float) -> None:
    async with watched() as swarm:
        await swarm.forge((state, 1.0, {"start_block": 0, "end_block": 6}), Span(0, 6), life_s)
        server = await swarm.seen()
        assert server.state is PeerState.ONLINE
        assert server.conflict == f"its record says {word}, but it answers for blocks 0–5"


async def test_a_forged_span_counts_for_nothing_and_is_shown_as_a_conflict() -> None:
    async with nodes(3) as (boot, alice, stranger), reader_of(boot) as reader:
        await serve(alice, Span(0, 3), Span(0, 3))
        first = (await crawl("main", NodeReader(reader), time.time, {})).snapshot
        assert first is not None
        swarm = Watched(boot, alice, stranger, reader, first)
        await swarm.forge((2, 1.0, {"start_block": 2, "end_block": 6}), Span(2, 6))
        report = await swarm.crawl()
        assert report.snapshot is not None
        (server,) = report.snapshot.models[0].servers
        assert (server.state, server.span) == (PeerState.ONLINE, Span(0, 3))
        assert server.conflict == "its record claims blocks 2–5, but it answers for blocks 0–2"
        assert coverage(report.snapshot.models[0]).holes == (Span(3, 6),)


async def test_records_replaced_by_plain_values_do_not_hide_a_server_that_answers() -> None:
    async with watched() as swarm:
        for at, writer in ((swarm.boot, swarm.stranger), (swarm.alice, swarm.stranger), (swarm.stranger, swarm.boot)):
            for block in range(6):
                await plant(writer, at, f"m.{block}", None, encode(5), 600.0)
        server = await swarm.seen()
        assert server.state is PeerState.ONLINE and server.conflict.startswith("no record of it stands in the DHT now")


async def test_a_stranger_with_a_forged_record_of_its_own_is_unreachable_and_covers_nothing() -> None:
    async with watched() as swarm:
        await swarm.forge((2, 1e6, {"start_block": 0, "end_block": 6}), Span(0, 6), subkey=peer_id("nobody"))
        await swarm.forge((2, 1e6, {"start_block": 0, "end_block": 6}), Span(0, 6), subkey=swarm.boot.peer_id)
        report = await swarm.crawl()
        assert report.snapshot is not None
        states = {server.peer_id: server for server in report.snapshot.models[0].servers}
        assert states[swarm.alice.peer_id].state is PeerState.ONLINE
        assert states[peer_id("nobody")].state is states[swarm.boot.peer_id].state is PeerState.UNREACHABLE
        assert coverage(report.snapshot.models[0]).min_redundancy == 1


@pytest.mark.parametrize("entry", [[6, "https://…"], {"num_blocks": 0}, {"num_blocks": "6"}, {"num_blocks": 31}], ids=str)
async def test_a_malformed_or_other_entry_of_the_index_leaves_the_model_as_it_was(entry: object) -> None:
    async with watched() as swarm:
        for at, writer in ((swarm.boot, swarm.stranger), (swarm.alice, swarm.stranger), (swarm.stranger, swarm.boot)):
            await plant(writer, at, MODELS_KEY, "m", encode(entry), 600.0)
        report = await swarm.crawl()
        assert report.snapshot is not None
        (model,) = report.snapshot.models
        assert (model.num_blocks, model.repository) == (6, "https://huggingface.co/Org/M")
        assert model.conflict and model.servers[0].state is PeerState.ONLINE


async def test_a_monitor_that_never_saw_a_model_finds_its_size_from_the_keys_of_its_servers() -> None:
    async with watched() as swarm:
        for at, writer in ((swarm.boot, swarm.stranger), (swarm.alice, swarm.stranger), (swarm.stranger, swarm.boot)):
            await plant(writer, at, MODELS_KEY, "m", encode([6, "https://…"]), 600.0)
        report = await crawl("main", NodeReader(swarm.reader), time.time, {})
        assert report.snapshot is not None
        (model,) = report.snapshot.models
        assert (model.num_blocks, model.repository) == (6, None) and "its size is what its block keys show" in model.conflict


def test_a_peer_that_forgot_everybody_is_made_anew_and_never_taken_for_an_empty_swarm() -> None:
    loop = BackgroundLoop("swarm-of-the-test")
    swarm = nodes(2)
    boot, alice = loop.run(swarm.__aenter__(), 30)
    try:
        loop.run(serve(alice, Span(0, 6), Span(0, 6)), 30)
        crawler = Crawler(loop.run(boot.addresses(), 10))
        first = crawler.crawl("main", {})
        assert first is not None and first.snapshot is not None and crawler._node is not None
        forgetful = crawler._node
        table = forgetful.dht.protocol.routing_table
        for node_id in list(table.uid_to_peer_id):
            del table[node_id]
        again = crawler.crawl("main", {}, first.snapshot)
        assert again is not None and again.snapshot is not None and crawler._node is not forgetful
        assert [server.peer_id for server in again.snapshot.models[0].servers] == [alice.peer_id]
        assert crawler.crawl_elsewhere("main", {}) is None, "there is no other entrance"
        assert crawler._node is None, "who was not believed is given up"
        crawler.stop()
    finally:
        loop.run(swarm.__aexit__(None, None, None), 30)
        loop.stop()


def test_a_doubtful_swarm_is_read_again_through_another_entrance() -> None:
    loop = BackgroundLoop("swarm-of-the-test")
    swarm = nodes(3)
    boot, second, alice = loop.run(swarm.__aenter__(), 30)
    try:
        loop.run(serve(alice, Span(0, 6), Span(0, 6)), 30)
        crawler = Crawler((*loop.run(boot.addresses(), 10), *loop.run(second.addresses(), 10)))
        report = crawler.crawl_elsewhere("main", {})
        assert report is not None and report.snapshot is not None
        assert report.bootstraps == {second.peer_id: True} and report.canary is True
        assert [server.peer_id for server in report.snapshot.models[0].servers] == [alice.peer_id]
        crawler.stop()
    finally:
        loop.run(swarm.__aexit__(None, None, None), 30)
        loop.stop()
