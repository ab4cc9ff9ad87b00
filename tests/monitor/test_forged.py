"""Strangers forge the records of real servers: what the servers themselves answer is what is shown."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from monitor.crawl import CrawlReport, crawl
from monitor.crawler import Crawler, NodeReader
from swarm.coverage import Verdict, coverage
from swarm.dht.background import BackgroundLoop
from swarm.dht.declare import declare_model, declare_server
from swarm.dht.node import Node
from swarm.placement import find_holes, without
from swarm.snapshot import Outcome, PeerState, Server, Snapshot, Visit
from swarm.wire.codec import encode
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.loopback import nodes, plant, reader_of
from tests.monitor.test_crawl import TransformerConnectionHandler, serve
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


@dataclass
class Held:
    """alice holds `span` of six blocks; strangers' records outlive one another and hers."""

    swarm: Watched
    handler: TransformerConnectionHandler
    life_s: float = 600.0

    async def claim(self, span: Span) -> Server:
        self.life_s += 100
        await self.swarm.forge((2, 1.0, {"start_block": span.start, "end_block": span.end}), span, self.life_s)
        report = await self.swarm.crawl()
        assert report.snapshot is not None, report.failure
        self.swarm.first = report.snapshot
        (server,) = report.snapshot.models[0].servers
        return server

    async def move(self, span: Span) -> Server:
        """As honest servers do it: what stands under their old keys runs out later."""
        self.life_s += 100
        self.handler.held = {f"m.{block}" for block in span}
        await declare_server(self.swarm.alice, "m", span, ServerRecord(ServerState.ONLINE, 10.0, span), self.life_s)
        report = await self.swarm.crawl()
        assert report.snapshot is not None, report.failure
        self.swarm.first = report.snapshot
        (server,) = report.snapshot.models[0].servers
        return server


@asynccontextmanager
async def held(span: Span) -> AsyncIterator[Held]:
    async with nodes(3) as (boot, alice, stranger), reader_of(boot) as reader:
        handler = TransformerConnectionHandler("m", span)
        await handler.add_p2p_handlers(alice.p2p)
        await declare_server(alice, "m", span, ServerRecord(ServerState.ONLINE, 10.0, span), 60.0)
        await declare_model(alice, "m", ModelRecord(6, None), 60.0)
        first = (await crawl("main", NodeReader(reader), time.time, {})).snapshot
        assert first is not None and first.models[0].servers[0].span == span
        yield Held(Watched(boot, alice, stranger, reader, first), handler)


@pytest.mark.parametrize(
    ("real", "forged"),
    [
        (Span(0, 6), [Span(0, 2), Span(4, 6), Span(2, 3), Span(1, 6)]),
        (Span(1, 5), [Span(0, 3), Span(3, 6), Span(0, 6), Span(1, 3), Span(5, 6)]),
    ],
    ids=["narrower", "overlapping, wider, beside"],
)
async def test_a_forged_part_of_a_span_takes_no_block_from_the_server(real: Span, forged: list[Span]) -> None:
    async with held(real) as swarm:
        for span in forged:
            server = await swarm.claim(span)
            assert (server.state, server.span) == (PeerState.ONLINE, real), span
            assert server.conflict == f"its record claims {span.in_words()}, but it answers for {real.in_words()}"
        moved = await swarm.move(Span(2, 4))
        assert (moved.state, moved.span, moved.conflict) == (PeerState.ONLINE, Span(2, 4), ""), "what is honest stays honest"


async def test_a_monitor_that_never_saw_a_server_asks_for_what_a_forger_left_of_its_records() -> None:
    async with held(Span(0, 6)) as swarm:
        await swarm.claim(Span(0, 2))
        report = await crawl("main", NodeReader(swarm.swarm.reader), time.time, {})
        assert report.snapshot is not None
        (server,) = report.snapshot.models[0].servers
        assert (server.state, server.span) == (PeerState.ONLINE, Span(0, 6))
        assert server.conflict == "its record claims blocks 0–1, but it answers for blocks 0–5"


@pytest.mark.parametrize("state", [0, 1], ids=["leaving", "joining"])
async def test_a_new_server_under_a_forged_state_is_found_and_one_that_is_made_up_holds_nothing(state: int) -> None:
    async with watched() as swarm:
        await swarm.forge((state, 1.0, {"start_block": 0, "end_block": 6}), Span(0, 6))
        await swarm.forge((1, 1.0, {"start_block": 0, "end_block": 6}), Span(0, 6), subkey=peer_id("ghost"))
        report = await crawl("main", NodeReader(swarm.reader), time.time, {})
        assert report.snapshot is not None
        seen = {server.peer_id: server for server in report.snapshot.models[0].servers}
        assert seen[swarm.alice.peer_id].state is PeerState.ONLINE and seen[swarm.alice.peer_id].conflict
        ghost = seen[peer_id("ghost")]
        assert ghost.state is PeerState.JOINING and not ghost.awaited
        assert find_holes(without(report.snapshot.models[0], swarm.alice.peer_id)) == (Span(0, 6),)


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


class HeldUp(NodeReader):
    """The first question to a server finds its p2pd frozen; it goes on before the second."""

    def __init__(self, node: Node, daemon: int) -> None:
        super().__init__(node)
        self.daemon = daemon
        self.outcomes: list[Outcome] = []

    async def visit(self, peer_id: str, prefix: str, span: Span) -> Visit:
        if not self.outcomes:
            os.kill(self.daemon, signal.SIGSTOP)
        try:
            visit = await super().visit(peer_id, prefix, span)
        finally:
            os.kill(self.daemon, signal.SIGCONT)
        self.outcomes.append(visit.outcome)
        return visit


@pytest.mark.slow
async def test_one_dial_that_is_lost_on_its_way_changes_nothing() -> None:
    async with watched() as swarm:
        held_up = HeldUp(swarm.reader, swarm.alice.p2p._child.pid)
        known = {"m": ModelRecord(6, "https://huggingface.co/Org/M")}
        report = await crawl("main", held_up, time.time, known, swarm.first)
        assert report.snapshot is not None, report.failure
        assert held_up.outcomes == [Outcome.TIMEOUT, Outcome.ANSWERED]
        assert coverage(report.snapshot.models[0]).verdict is Verdict.THIN
        assert report.snapshot.models[0].servers[0].state is PeerState.ONLINE


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
