"""Frozen peers cost a crawl one time limit: servers seen before are dialled while the DHT is read, each as often as ever."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hivemind.dht.protocol import DHTProtocol

from monitor.crawl import CrawlReport, crawl
from monitor.crawler import NodeReader
from swarm.dht.silence import Silence
from swarm.errors import Unreachable
from swarm.snapshot import Model, Outcome, PeerState, Reading, Snapshot, Visit
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span
from tests.loopback import nodes, reader_of
from tests.monitor.test_crawl import ONE, MadeUpReader, reading_of, serve
from tests.swarm.asked import asked_of
from tests.swarms import peer_id, server

PATIENCE_S = 30.0


def before(*names: str, answered: bool = True) -> Snapshot:
    """They stood at block 0 of m."""
    outcome = Outcome.ANSWERED if answered else Outcome.TIMEOUT
    seen = (server(name, 0, 1) for name in names)
    visited = tuple(replace(one, visit=Visit(one.peer_id, 1.0, outcome, span=Span(0, 1))) for one in seen)
    return Snapshot("main", 1.0, (Model("m", 1, None, visited),), ())


class Waiting(MadeUpReader):
    """Its reads end only when somebody is being dialled, and the dial only when all has been read."""

    def __init__(self, *names: str) -> None:
        super().__init__({"m": ONE}, {"m": reading_of("m", *names)})
        self.dialled, self.read = asyncio.Event(), asyncio.Event()

    async def bootstrap_states(self) -> Any:
        await self.dialled.wait()
        return await super().bootstrap_states()

    async def read_blocks(self, models: Mapping[str, int], heard: object = None) -> dict[str, Reading]:
        self.read.set()
        return await super().read_blocks(models)

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        self.dialled.set()
        await self.read.wait()
        return await super().visit(peer, prefix, span)


@pytest.mark.parametrize("answered", [True, False])
async def test_servers_seen_before_are_dialled_while_the_dht_is_read_and_each_once(answered: bool) -> None:
    reader = Waiting("a", "b", "new")
    seen = before("a", "b", answered=answered)
    report = await asyncio.wait_for(crawl("main", reader, lambda: 5.0, {"m": ONE}, seen), PATIENCE_S)
    assert report.snapshot is not None
    assert Counter(peer for peer, _, _ in reader.asked) == dict.fromkeys(map(peer_id, ("a", "b", "new")), 1)
    assert {server.state for server in report.snapshot.models[0].servers} == {PeerState.ONLINE}


async def test_who_was_dialled_early_in_vain_is_asked_once_more_where_it_answered_last_time() -> None:
    class Deaf(MadeUpReader):
        async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
            found = await super().visit(peer, prefix, span)
            first = sum(asked == peer for asked, _, _ in self.asked) == 1
            return replace(found, outcome=Outcome.TIMEOUT) if first else found

    reader = Deaf({"m": ONE}, {"m": reading_of("m", "a")})
    report = await crawl("main", reader, lambda: 5.0, {"m": ONE}, before("a"))
    assert report.snapshot is not None and len(reader.asked) == 2
    assert report.snapshot.models[0].servers[0].state is PeerState.ONLINE


async def test_a_crawl_that_fails_leaves_no_dial_behind() -> None:
    ended: list[str] = []

    class Endless(MadeUpReader):
        async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
            dialled.set()
            try:
                return await asyncio.Future()
            finally:
                ended.append(peer)

        async def check_alive(self) -> None:
            await dialled.wait()
            raise Unreachable("p2pd does not answer")

    dialled = asyncio.Event()
    report = await crawl("main", Endless({}, {}), lambda: 5.0, {}, before("a"))
    assert report.failure and ended == [peer_id("a")]


class Backed(MadeUpReader):
    """libp2p does not dial; a fresh dial of an announced server finds nobody either."""

    fresh = 0

    def __init__(self) -> None:
        super().__init__({"m": ONE}, {"m": reading_of("m", "a")})
        self.early = asyncio.Event()

    async def read_index(self) -> Reading:
        await self.early.wait()
        return await super().read_index()

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        await super().visit(peer, prefix, span)
        return Visit(peer, 5.0, Outcome.REFUSED, "dial backoff", span=span, backed_off=True)

    async def visit_afresh(self, failed: Visit, prefix: str, span: Span) -> Visit:
        self.fresh += 1
        self.early.set()
        return failed


async def test_a_fresh_dial_that_was_made_early_is_not_made_again() -> None:
    reader = Backed()
    seen = before("a", answered=False)
    await asyncio.wait_for(crawl("main", reader, lambda: 5.0, {"m": ONE}, seen), PATIENCE_S)
    assert (len(reader.asked), reader.fresh) == (1, 1)


@pytest.mark.slow
async def test_a_whole_crawl_waits_for_each_frozen_node_once_and_sees_it_again_when_it_is_back() -> None:
    async with nodes(6) as (boot, alice, *others), reader_of(boot) as ours:
        await serve(alice, Span(0, 6), Span(0, 6))
        silence, last = Silence(), None
        still = {node.peer_id: node.p2p._child.pid for node in others[1:]}

        async def crawled() -> CrawlReport:
            report = await crawl("main", NodeReader(ours, silence=silence), time.time, {"m": ModelRecord(6, None)}, last)
            assert report.failure == "" and report.canary is True and report.snapshot is not None
            (model,) = report.snapshot.models
            assert [server.state for server in model.servers] == [PeerState.ONLINE] and not model.unread_blocks
            return report

        last = (await crawled()).snapshot
        for pid in still.values():
            os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(2):
                with asked_of(ours) as asked:
                    await crawled()
                assert {peer: asked[peer] for peer in still} == dict.fromkeys(still, 1)
        finally:
            for pid in still.values():
                os.kill(pid, signal.SIGCONT)
        await crawled()
        assert still.keys() <= ours.known_peers()


@pytest.mark.slow
async def test_a_server_whose_dht_node_is_mute_is_online_for_it_answers_when_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mute: set[object] = set()
    answer = DHTProtocol.rpc_find

    @functools.wraps(answer)
    async def rpc_find(self: Any, request: Any, context: Any) -> Any:
        if self in mute:
            await asyncio.Event().wait()
        return await answer(self, request, context)

    monkeypatch.setattr(DHTProtocol, "rpc_find", rpc_find)
    async with nodes(4) as (boot, alice, *_), reader_of(boot) as ours:
        await serve(alice, Span(0, 6), Span(0, 6))
        mute.add(alice.dht.protocol)
        silence = Silence()
        known_before_anything_is_read: list[bool] = []

        class Watched(NodeReader):
            async def canary(self) -> bool:
                known_before_anything_is_read.append(alice.p2p.peer_id in silence)
                return await super().canary()

        with asked_of(ours) as asked:
            report = await crawl("main", Watched(ours, silence=silence), time.time, {})
        assert known_before_anything_is_read == [True]
        assert asked[alice.peer_id] == 1 and alice.p2p.peer_id in silence
        assert report.snapshot is not None
        (seen,) = report.snapshot.models[0].servers
        assert (seen.peer_id, seen.state) == (alice.peer_id, PeerState.ONLINE)
