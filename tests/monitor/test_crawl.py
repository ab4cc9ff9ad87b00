"""A crawl of a real DHT on loopback, with real servers that answer and strangers who write nonsense beside them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping

import msgpack
import pytest
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2PContext, ServicerBase
from hivemind.proto import runtime_pb2
from hivemind.utils import get_dht_time

from monitor.crawl import INDEX_UNREAD, CrawlReport, Entrances, crawl
from monitor.crawler import Crawler, NodeReader
from monitor.gate import lost_between
from monitor.probe import VISITS_AT_ONCE
from monitor.progress import Stage
from monitor.wanted import MAX_KEYS
from swarm.dht.background import BackgroundLoop
from swarm.dht.declare import declare_model, declare_server
from swarm.dht.node import Node
from swarm.dht.routes import Connection
from swarm.errors import SwarmError, Unreachable
from swarm.snapshot import Entry, Outcome, PeerState, Reading, Visit
from swarm.wire.codec import encode
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.loopback import nodes, plant, reader_of
from tests.swarms import peer_id


class TransformerConnectionHandler(ServicerBase):
    """Answers rpc_info for the blocks that it holds, as a Petals server does."""

    def __init__(self, prefix: str, held: Span) -> None:
        self.held = {block_uid(prefix, block) for block in held}

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        if request.uid and request.uid not in self.held:
            raise KeyError(request.uid)
        return runtime_pb2.ExpertInfo(serialized_info=encode({"version": "2.3.0", "cache_tokens_available": 4096}))


async def serve(node: Node, claimed: Span, held: Span, state: ServerState = ServerState.ONLINE) -> None:
    await TransformerConnectionHandler("m", held).add_p2p_handlers(node.p2p)
    await declare_server(node, "m", claimed, ServerRecord(state, 10.0, claimed, version="2.2.0"), 60.0)
    await declare_model(node, "m", ModelRecord(6, "https://huggingface.co/Org/M"), 60.0)


GOOD = (2, 10.0, {"start_block": 0, "end_block": 2})
BAD_UNDER_BLOCK_0 = {
    "undecodable": msgpack.packb(GOOD)[:-1],
    "throughput": encode((2, 10, {"start_block": 0, "end_block": 2})),
    "state": encode((7, 1.0, {})),
    "span": encode((2, 1.0, {"start_block": 5, "end_block": 2})),
    "shape": encode("hello"),
}


async def test_bad_records_cost_only_themselves_and_are_counted_by_reason() -> None:
    async with nodes(4) as (boot, alice, bob, stranger), reader_of(boot) as reader:
        await serve(alice, Span(0, 4), Span(0, 4))
        await serve(bob, Span(2, 6), Span(3, 6))
        for reason, value in BAD_UNDER_BLOCK_0.items():
            assert await plant(stranger, boot, "m.0", peer_id(reason), value)
        assert await plant(stranger, boot, "m.1", 17, encode(GOOD))
        assert await plant(stranger, boot, MODELS_KEY, "no.prefix", encode({"num_blocks": 3, "repository": None}))
        report = await crawl("main", NodeReader(reader), time.time, {})
        assert report.failure == "" and report.snapshot is not None
        (model,) = report.snapshot.models
        assert (model.prefix, model.num_blocks, model.unread_blocks) == ("m", 6, frozenset())
        seen = {server.peer_id: server for server in model.servers}
        assert set(seen) == {alice.peer_id, bob.peer_id}
        assert seen[alice.peer_id].state is PeerState.ONLINE and seen[alice.peer_id].span == Span(0, 4)
        visit = seen[alice.peer_id].visit
        assert visit is not None and (visit.version, visit.cache_tokens_left) == ("2.3.0", 4096)
        assert seen[bob.peer_id].state is PeerState.UNREACHABLE, "it announces block 2 and does not hold it"
        assert seen[bob.peer_id].visit is not None and seen[bob.peer_id].visit.outcome is Outcome.NOT_HELD  # type: ignore[union-attr]
        counts = Counter(dropped.reason for dropped in report.snapshot.dropped)
        assert counts == {**dict.fromkeys(BAD_UNDER_BLOCK_0, 1), "subkey": 1, "prefix": 1}
        assert report.canary is True and report.split == ""
        assert [(state.family, state.step) for state in report.addresses] == [("IPv4", "ok")]
        assert visit.via == "direct" and visit.span == Span(0, 4)
        assert report.bootstraps == {boot.peer_id: True} and report.indexed == {"m"}


@pytest.mark.parametrize(
    "blow", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)], ids=["dies", "freezes"]
)
def test_the_worker_keeps_one_peer_and_makes_a_new_one_when_its_daemon(blow: signal.Signals) -> None:
    """As the Celery worker runs it: from a thread without an event loop."""
    loop = BackgroundLoop("swarm-of-the-test")
    swarm = nodes(2)
    boot, alice = loop.run(swarm.__aenter__(), 30)
    try:
        loop.run(serve(alice, Span(0, 6), Span(0, 6)), 30)
        crawler = Crawler(loop.run(boot.addresses(), 10))
        first = crawler.crawl("main", {})
        assert first is not None and first.snapshot is not None
        assert first.snapshot.models[0].servers[0].state is PeerState.ONLINE
        kept = crawler._node
        assert crawler.dial(alice.peer_id).outcome is Outcome.ANSWERED and crawler._node is kept
        nobody = crawler.dial(peer_id("nobody"))
        assert not nobody.answered and nobody.outcome is not Outcome.PROTOCOL_ABSENT
        assert kept is not None
        os.kill(kept.p2p._child.pid, blow)
        # A signal takes its time: until then the daemon answers, and is found to be well.
        with contextlib.suppress(ChildProcessError):  # the event loop has heard of its end first
            os.waitid(os.P_PID, kept.p2p._child.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        again = crawler.crawl("main", {})
        assert again is not None and again.snapshot is not None and crawler._node is not kept
        assert [server.peer_id for server in again.snapshot.models[0].servers] == [alice.peer_id]
        crawler.stop()
    finally:
        loop.run(swarm.__aexit__(None, None, None), 30)
        loop.stop()


async def test_neighbours_that_are_slow_for_a_moment_cost_no_check() -> None:
    """hivemind strikes off who does not store within 3 s, and then nobody was left to be asked for the index."""
    async with nodes(2) as (boot, alice), reader_of(boot) as reader:
        await serve(alice, Span(0, 6), Span(0, 6))
        protocol, patience_s = reader.dht.protocol, reader.dht.protocol.wait_timeout
        store, neighbours, asked = protocol.call_store, len(reader.known_peers()), Counter[str]()

        async def store_too_slow_at_first(peer: object, *args: object) -> object:
            asked["store"] += 1
            protocol.wait_timeout = 1e-6 if asked["store"] <= neighbours else patience_s
            try:
                return await store(peer, *args)
            finally:
                protocol.wait_timeout = patience_s

        protocol.call_store = store_too_slow_at_first
        report = await crawl("main", NodeReader(reader), time.time, {})
        assert report.failure == "" and report.canary is True and report.snapshot is not None
        assert neighbours == 2 and asked["store"] > neighbours
        assert [server.peer_id for server in report.snapshot.models[0].servers] == [alice.peer_id]


@pytest.mark.parametrize(
    ("peers", "reason", "bootstraps"),
    [
        ((), "no bootstrap peer is configured", {}),
        (("/ip4/127.0.0.1/tcp/1/p2p/nonsense",), "nonsense", {}),
        ((f"/ip4/127.0.0.1/tcp/1/p2p/{peer_id('x')}",), "no bootstrap peer answers", {peer_id("x"): False}),
    ],
)
def test_a_crawl_that_cannot_start_is_failed_with_its_reason(
    peers: tuple[str, ...], reason: str, bootstraps: dict[str, bool]
) -> None:
    crawler = Crawler(peers)
    report = crawler.crawl("main", {})
    assert report is not None and report.snapshot is None and reason in report.failure
    assert report.bootstraps == bootstraps
    with pytest.raises(SwarmError):
        crawler.dial(peer_id("a"))
    crawler.stop()


class MadeUpReader:
    """A swarm as given. `lost` is raised where the peer dies while servers are visited."""

    def __init__(self, index: dict[str, ModelRecord], readings: dict[str, Reading], index_read: bool = True) -> None:
        self.index, self.readings, self.index_read = index, readings, index_read
        self.asked: list[tuple[str, str, Span]] = []
        self.at_once = self.most_at_once = 0
        self.lost: Unreachable | None = None
        self.dies_when_visiting = False

    async def check_alive(self) -> None:
        if self.lost:
            raise self.lost

    async def rejoin(self) -> None:
        return None

    async def bootstrap_states(self) -> Entrances:
        return Entrances({"boot": True})

    async def canary(self) -> bool:
        return True

    async def routes(self) -> dict[str, Connection]:
        return {}

    async def read_index(self) -> Reading:
        entries = [Entry(prefix, record.to_wire(), 60.0) for prefix, record in self.index.items()]
        return Reading({MODELS_KEY: entries}, frozenset() if self.index_read else frozenset({MODELS_KEY}))

    async def read_blocks(self, models: Mapping[str, int], heard: object = None) -> dict[str, Reading]:
        return {prefix: self.readings.get(prefix, Reading({})) for prefix in models}

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        self.asked.append((peer, prefix, span))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.dies_when_visiting:
            self.lost = Unreachable("p2pd does not answer")
        return Visit(peer, 5.0, Outcome.ANSWERED if prefix != "second" else Outcome.NOT_HELD)


def reading_of(prefix: str, *peers: str, state: int = 2) -> Reading:
    record = (state, 1.0, {"start_block": 0, "end_block": 1})
    return Reading({block_uid(prefix, 0): [Entry(peer_id(peer), record, 60.0) for peer in peers]})


async def crawled(reader: MadeUpReader, known: dict[str, ModelRecord] | None = None) -> CrawlReport:
    return await crawl("main", reader, lambda: 5.0, known or {})


ONE = ModelRecord(1, None)


async def test_an_index_that_could_not_be_read_is_a_failure_and_not_an_empty_swarm() -> None:
    silence = Reading({}, frozenset({block_uid("m", 0), block_uid("m", 1)}))
    for known in ({"m": ONE}, {}):
        report = await crawled(MadeUpReader({}, {"m": silence}, index_read=False), known)
        assert report.snapshot is None and report.failure == "the index of models could not be read"
        assert report.bootstraps == {"boot": True}


async def test_an_index_that_nobody_can_send_hides_new_models_and_none_that_stood_before() -> None:
    records = {prefix: reading_of(prefix, prefix) for prefix in ("m", "n", "new", "_mine")}
    reader = MadeUpReader({"m": ONE, "n": ONE}, records)
    first = await crawled(reader)
    assert first.snapshot is not None
    reader.index_read, reader.index = False, {}
    # The monitor was off for so long that it remembers only one of them.
    second = await crawl("main", reader, lambda: 35.0, {"m": ONE}, first.snapshot, ["_mine"])
    assert second.failure == "" and second.snapshot is not None
    assert {m.prefix: len(m.servers) for m in second.snapshot.models} == {"_mine": 1, "m": 1, "n": 1}
    assert lost_between(first.snapshot, second.snapshot) == frozenset(), "what was not read is not lost"
    assert second.indexed == {"m", "n"} and second.keys_unread == 0
    assert second.snapshot.dropped == (INDEX_UNREAD,)


async def test_before_it_is_said_that_nobody_answers_the_entrances_are_called_again() -> None:
    class Forgetful(MadeUpReader):
        """Knows nobody until it calls the entrances."""

        called = 0

        async def rejoin(self) -> None:
            self.called += 1
            self.index_read = True

        async def canary(self) -> bool:
            return self.index_read

    reader = Forgetful({"m": ONE}, {"m": reading_of("m", "a")}, index_read=False)
    report = await crawled(reader)
    assert report.failure == "" and report.canary and reader.called == 1
    assert report.snapshot is not None and report.snapshot.model("m") is not None
    reader.called = 0
    await crawled(reader)
    assert reader.called == 0, "who knows somebody has no need to"


async def test_a_model_that_the_index_lost_is_still_read() -> None:
    reader = MadeUpReader({}, {"m": reading_of("m", "a")})
    report = await crawled(reader, {"m": ONE})
    assert report.snapshot is not None and len(report.snapshot.models[0].servers) == 1
    assert report.indexed == frozenset()


@pytest.mark.parametrize(("state", "word"), [(0, PeerState.LEAVING), (1, PeerState.JOINING)])
async def test_every_server_is_visited_whatever_it_is_said_to_do_and_who_loads_or_leaves_comes_last(
    state: int, word: PeerState
) -> None:
    records = {prefix: reading_of(prefix, prefix, state=state) for prefix in ("fresh", "second")}
    records["m"] = reading_of("m", "a")
    reader = MadeUpReader(dict.fromkeys(records, ONE), records)
    report = await crawled(reader)
    assert [(prefix, peer) for peer, prefix, _ in reader.asked] == [
        ("m", peer_id("a")), ("fresh", peer_id("fresh")), ("second", peer_id("second"))
    ]  # fmt: skip
    assert report.snapshot is not None
    states = {m.prefix: m.servers[0].state for m in report.snapshot.models}
    assert states == {"m": PeerState.ONLINE, "fresh": PeerState.ONLINE, "second": word}, "the second denies that it serves"


async def test_a_peer_of_two_models_is_judged_for_each() -> None:
    reader = MadeUpReader({"m": ONE, "second": ONE}, {"m": reading_of("m", "a"), "second": reading_of("second", "a")})
    report = await crawled(reader)
    assert report.snapshot is not None
    assert [m.servers[0].state for m in report.snapshot.models] == [PeerState.ONLINE, PeerState.UNREACHABLE]


async def test_a_peer_that_dies_under_the_visits_makes_the_crawl_fail_and_no_server_unreachable() -> None:
    reader = MadeUpReader({"m": ONE}, {"m": reading_of("m", "a")})
    reader.dies_when_visiting = True
    report = await crawled(reader)
    assert report.snapshot is None and report.failure == "p2pd does not answer"


async def test_visits_are_made_side_by_side_but_not_all_at_once() -> None:
    reader = MadeUpReader({"m": ONE}, {"m": reading_of("m", *(f"s{n}" for n in range(300)))})
    await crawled(reader)
    assert len(reader.asked) == 300 and reader.most_at_once == VISITS_AT_ONCE


async def test_a_flood_of_entries_in_the_index_costs_a_bounded_read_and_no_model_that_is_served() -> None:
    flood = {f"junk-{n}": ModelRecord(2_048, None) for n in range(100)}
    reader = MadeUpReader({**flood, "m": ONE}, {"m": reading_of("m", "a")})
    report = await crawled(reader)
    assert report.snapshot is not None
    assert sum(model.num_blocks for model in report.snapshot.models) <= MAX_KEYS
    assert report.snapshot.model("m") is not None
    left_out = [record for record in report.snapshot.dropped if record.reason == "too-many-models"]
    assert len(left_out) + len(report.snapshot.models) == 101 and left_out


@pytest.mark.slow  # each look at the index waits for replies that p2pd does not let through
async def test_an_index_larger_than_any_reply_does_not_blind_the_monitor() -> None:
    async with nodes(4) as (boot, alice, bob, stranger), reader_of(boot) as reader:
        await serve(alice, Span(0, 6), Span(0, 6))
        first = await crawl("main", NodeReader(reader), time.time, {})
        for number in range(80):
            for at in (boot, alice, bob):
                assert await plant(stranger, at, MODELS_KEY, f"junk{number}", b"x" * 60_000)
            # Its own copy goes over no wire.
            name, until = DHTID.generate(MODELS_KEY), get_dht_time() + 60
            stranger.dht.protocol.storage.store_subkey(name, f"junk{number}", b"x" * 60_000, until)
        report = await crawl("main", NodeReader(reader), time.time, {"m": ModelRecord(6, None)}, first.snapshot)
    assert report.failure == "" and report.snapshot is not None and INDEX_UNREAD in report.snapshot.dropped
    (model,) = report.snapshot.models
    assert [(server.peer_id, server.state) for server in model.servers] == [(alice.peer_id, PeerState.ONLINE)]


async def test_models_named_without_a_size_take_turns_and_those_looked_for_come_first() -> None:
    class Unsized(MadeUpReader):
        """Its index names a hundred models, and spoils the entry of each."""

        sized: Counter[str] = Counter()

        async def read_index(self) -> Reading:
            names = [*(f"a-{n}" for n in range(99)), "real"]
            return Reading({MODELS_KEY: [Entry(name, "spoilt", 60.0) for name in names]})

        async def read_blocks(self, models: Mapping[str, int], heard: object = None) -> dict[str, Reading]:
            self.sized.update(models)
            return await super().read_blocks(models)

    reader = Unsized({}, {"_mine": reading_of("_mine", "a"), "real": reading_of("real", "b")})
    seen = None
    for _ in range(60):
        report = await crawl("main", reader, lambda: 5.0, {}, seen, ["_mine"])
        seen = report.snapshot
        assert report.snapshot is not None and report.snapshot.model("_mine") is not None
    assert reader.sized["real"], "sorted by name it would never have been its turn"


async def test_how_far_a_crawl_is_is_told_stage_by_stage() -> None:
    """By a real reader: the keys are counted as they are answered for, the servers as they are asked."""
    told: list[tuple[Stage, int, int]] = []
    async with nodes(2) as (boot, alice), reader_of(boot) as reader:
        await serve(alice, Span(0, 6), Span(0, 6))
        await crawl("main", NodeReader(reader), time.time, {}, tell=lambda *what: told.append(what))
    assert told[:3] == [(Stage.ENTRANCES, 1, 1), (Stage.MODELS, 1, 1), (Stage.BLOCKS, 0, 7)], "and one key beyond the last"
    assert (Stage.BLOCKS, 7, 7) in told and told[-2:] == [(Stage.SERVERS, 0, 1), (Stage.SERVERS, 1, 1)]


async def test_a_prefix_that_is_kept_out_of_the_index_is_found_where_it_is_looked_for() -> None:
    reader = MadeUpReader({}, {"_mine": reading_of("_mine", "a")})
    report = await crawl("main", reader, lambda: 5.0, {}, None, ["_mine", "_nothing"])
    assert report.snapshot is not None
    assert [(model.prefix, len(model.servers)) for model in report.snapshot.models] == [("_mine", 1)]
