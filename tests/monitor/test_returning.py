"""A server that comes back is seen at once, though libp2p does not dial it for a while after it was away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.launch.ports import free_port
from monitor.crawl import crawl
from monitor.crawler import Crawler
from swarm.dht.afresh import FreshDialler
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.dht.probe import visit
from swarm.snapshot import Outcome, PeerState, Snapshot, Visit
from swarm.wire.spans import Span
from tests.loopback import nodes, reader_of
from tests.monitor.seeding import unreachable
from tests.monitor.test_crawl import ONE, MadeUpReader, reading_of, serve
from tests.swarms import model, peer_id

WHOLE = Span(0, 6)


async def starts(boot: Node, identity: Path, port: int) -> Node:
    listen = (f"/ip4/127.0.0.1/tcp/{port}",)
    server = await start_node(NodeConfig(await boot.addresses(), listen=listen, identity_path=identity))
    await serve(server, WHOLE, WHOLE)
    return server


@pytest.mark.slow
async def test_a_server_that_returns_is_dialled_though_libp2p_would_not_do_so_yet(tmp_path: Path) -> None:
    port = free_port()
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        dialler = FreshDialler()
        server = await starts(boot, tmp_path / "id", port)
        try:
            assert (await visit(reader.p2p, server.peer_id, "m", WHOLE)).answered
            await server.stop()
            # The first one is a dial indeed; libp2p waits for 5 s at the least after it.
            while not (failed := await visit(reader.p2p, server.peer_id, "m", WHOLE)).backed_off:
                assert failed.outcome is Outcome.REFUSED
            server = await starts(boot, tmp_path / "id", port)
            found = await dialler.visit(failed, "m", WHOLE)
            assert (found.outcome, found.span, found.peer_id) == (Outcome.ANSWERED, WHOLE, server.peer_id)
            assert (await dialler.visit(failed, "m", Span(0, 7))).outcome is Outcome.NOT_HELD
        finally:
            await dialler.close()
            await server.stop()


async def test_where_no_address_is_known_or_none_leads_anywhere_the_first_answer_stands() -> None:
    dialler = FreshDialler()
    try:
        for addresses in ((), (f"/ip4/127.0.0.1/tcp/{free_port()}",), ("/ip4/no/tcp/address",)):
            failed = Visit(peer_id("a"), 1.0, Outcome.REFUSED, "first", addresses=addresses, backed_off=True)
            assert await dialler.visit(failed, "m", WHOLE) == replace(failed, span=WHOLE)
            assert await dialler.dial(failed) == failed
    finally:
        await dialler.close()


@pytest.mark.slow
async def test_who_asks_whether_it_can_be_reached_is_dialled_indeed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes(2) as (boot, server):
        await serve(server, WHOLE, WHOLE)
        addresses = await server.addresses()

        async def refuses(_: object, who: str) -> Visit:
            return Visit(who, 1.0, Outcome.REFUSED, "dial backoff", addresses=addresses, backed_off=True)

        monkeypatch.setattr("monitor.crawler.dial", refuses)
        crawler = Crawler(await boot.addresses())
        try:
            assert (await asyncio.to_thread(crawler.dial, server.peer_id)).answered
        finally:
            await asyncio.to_thread(crawler.stop)


class BackedOff(MadeUpReader):
    """libp2p dials nobody."""

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        return Visit(peer, 5.0, Outcome.REFUSED, "dial backoff", span=span, backed_off=True)

    async def visit_afresh(self, failed: Visit, prefix: str, span: Span) -> Visit:
        self.asked.append((failed.peer_id, prefix, span))
        return replace(failed, outcome=Outcome.ANSWERED, backed_off=False)


async def test_who_is_announced_is_dialled_afresh_and_who_is_only_remembered_waits_for_its_turn() -> None:
    reader = BackedOff({"m": ONE}, {"m": reading_of("m", "here")})
    before = Snapshot("main", 1.0, (replace(model(1, unreachable("here", 0, 1), unreachable("gone", 0, 1)), prefix="m"),))
    report = await crawl("main", reader, lambda: 5.0, {"m": ONE}, before)
    assert report.snapshot is not None and [who for who, _, _ in reader.asked] == [peer_id("here")]
    assert [(s.peer_id, s.state) for s in report.snapshot.models[0].servers] == [(peer_id("here"), PeerState.ONLINE)]
