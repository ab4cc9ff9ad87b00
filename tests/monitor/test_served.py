"""What is counted is what servers answer for, crawl after crawl, whatever strangers write about them in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.crawl import crawl
from monitor.gate import Hold, Publish, judge, lost_between
from monitor.published import CrawlFacts, Published
from swarm.coverage import coverage
from swarm.placement import find_holes
from swarm.placement.decisions import Promise
from swarm.snapshot import LOADING_LIMIT_S, SLOW_AFTER_S, Entry, Model, Outcome, PeerState, Reading, Server, Snapshot, Visit
from swarm.wire.keys import block_uid
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.monitor.test_crawl import MadeUpReader
from tests.swarms import peer_id

BLOCKS = 6
WHOLE = Span(0, BLOCKS)
RECORD = ModelRecord(BLOCKS, None)
INTERVAL_S = 30.0


@dataclass
class World(MadeUpReader):
    """Servers by name with the blocks that they really hold, and what stands in the DHT, by (name, block): a later word
    replaces an earlier one. `lost` names those whose next so many dials fail; `served` None is a peer that serves nothing."""

    served: dict[str, Span | None]
    written: dict[tuple[str, int], tuple[ServerRecord, float]] = field(default_factory=dict)
    writings: int = 0
    losing: dict[str, int] = field(default_factory=dict)
    at: float = 5.0
    seen: Snapshot | None = None

    def __post_init__(self) -> None:
        super().__init__({"m": RECORD}, {})
        for name, span in self.served.items():
            if span is not None:
                self.write(name, span)

    def write(self, name: str, claimed: Span, state: ServerState = ServerState.ONLINE, keys: Span | None = None) -> None:
        # Each writing with a later expiry than the last one; ten years ahead, as the DHT accepts it.
        self.writings += 1
        record = ServerRecord(state, 10.0, claimed), 3e8 + self.writings
        self.written.update({(name, block): record for block in keys or claimed})

    async def read_blocks(self, models: object, heard: object = None) -> dict[str, Reading]:
        entries: dict[str, list[Entry]] = {}
        for (name, block), (record, expires_at) in self.written.items():
            entries.setdefault(block_uid("m", block), []).append(Entry(peer_id(name), record.to_wire(), expires_at))
        return {"m": Reading(entries)}

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        self.asked.append((peer, prefix, span))
        name = next((name for name in self.served if peer_id(name) == peer), None)
        if name is None:
            return Visit(peer, self.at, Outcome.NO_ADDRESS, span=span)
        if self.losing.get(name, 0) > 0:
            self.losing[name] -= 1
            return Visit(peer, self.at, Outcome.TIMEOUT, span=span)
        held = self.served[name]
        if held is None:
            return Visit(peer, self.at, Outcome.PROTOCOL_ABSENT, span=span)
        answer = {span.start, span.end - 1} <= set(held)
        return Visit(peer, self.at, Outcome.ANSWERED if answer else Outcome.NOT_HELD, span=span)

    async def crawl(self, after_s: float = INTERVAL_S) -> Model:
        self.at += after_s
        self.asked = []
        report = await crawl("main", self, lambda: self.at, {"m": RECORD}, self.seen)
        assert report.snapshot is not None, report.failure
        self.report, self.seen = report, report.snapshot
        return report.snapshot.models[0]

    async def server(self, name: str = "a") -> Server:
        return {server.peer_id: server for server in (await self.crawl()).servers}[peer_id(name)]


def spans() -> Iterator[Span]:
    return (Span(start, end) for start in range(BLOCKS) for end in range(start + 1, BLOCKS + 1))


@pytest.mark.parametrize("held", [WHOLE, Span(1, 5), Span(2, 4), Span(0, 3), Span(5, 6)], ids=str)
async def test_no_forged_span_takes_a_block_from_a_known_server_or_gives_it_one(held: Span) -> None:
    """Narrower, wider, overlapping on either side, beside it, and touching: all there are."""
    for forged in spans():
        world = World({"a": held})
        await world.crawl()
        world.write("a", forged)
        for _ in range(2):
            server = await world.server()
            assert (server.state, server.span) == (PeerState.ONLINE, held), forged
            said = f"its record claims {forged.in_words()}, but it answers for {held.in_words()}"
            assert server.conflict == ("" if forged == held else said)


@pytest.mark.parametrize("held", [WHOLE, Span(1, 5), Span(0, 3)], ids=str)
async def test_at_first_sight_the_keys_that_a_forger_left_alone_say_what_else_to_ask_for(held: Span) -> None:
    for forged in spans():
        world = World({"a": held})
        world.write("a", forged)
        server = await world.server()
        left = [block for block in held if block not in forged]
        if held.covers(forged):
            assert (server.state, server.span) == (PeerState.ONLINE, held), forged
            assert bool(server.conflict) == (forged != held)
        elif left:
            assert server.state is PeerState.ONLINE and held.covers(server.span), forged
            assert set(left) <= set(server.span) and server.conflict
        else:
            assert server.state is PeerState.UNREACHABLE, "every key of it says what it denies"


@pytest.mark.parametrize("old", list(spans()), ids=str)
async def test_an_honest_move_is_a_move_and_no_conflict(old: Span) -> None:
    for new in spans():
        world = World({"a": old})
        await world.crawl()
        # Its old records stand until they run out.
        world.served["a"] = new
        world.write("a", new)
        server = await world.server()
        assert (server.state, server.span, server.conflict) == (PeerState.ONLINE, new, ""), new


async def test_a_lost_key_in_the_middle_of_a_span_says_nothing_against_the_server() -> None:
    world = World({"a": WHOLE})
    del world.written["a", 2]
    server = await world.server()
    assert (server.state, server.span, server.conflict) == (PeerState.ONLINE, WHOLE, "")


async def test_a_forged_span_and_silence_do_not_make_the_monitor_forget_what_was_served() -> None:
    world = World({"a": WHOLE})
    await world.crawl()
    world.write("a", Span(0, 2), keys=WHOLE)
    world.losing["a"] = 6
    silent = [await world.server() for _ in range(3)]
    assert [server.state for server in silent] == [PeerState.UNREACHABLE] * 3
    world.losing["a"] = 0
    server = await world.server()
    assert (server.state, server.span) == (PeerState.ONLINE, WHOLE) and server.conflict


async def test_one_peer_is_asked_for_a_few_spans_only_however_many_are_written_for_it() -> None:
    world = World({"a": Span(0, 1)})
    await world.crawl()
    for block in range(1, BLOCKS):
        for end in range(block + 1, BLOCKS + 1):
            world.write("a", Span(block, end), keys=Span(block, block + 1))
    assert (await world.server()).span == Span(0, 1)
    assert 1 <= len(world.asked) <= 4


def judged(world: World, before: Snapshot) -> Publish | Hold:
    return judge(Published(before, CrawlFacts(5, 5, bootstraps={"boot": True}), 35.0, INTERVAL_S), world.report)


async def test_spans_forged_for_all_servers_at_once_make_no_hole_no_advice_and_no_doubt() -> None:
    world = World(dict.fromkeys("abc", WHOLE))
    await world.crawl()
    before = world.seen
    assert before is not None
    for name in "abc":
        world.write(name, Span(0, 2))
    model = await world.crawl()
    assert coverage(model).sentence() == "runs; every block has two or more servers"
    assert find_holes(model) == () and judged(world, before) == Publish()
    assert all(server.conflict for server in model.servers)


async def test_servers_that_all_deny_most_of_their_blocks_at_once_are_held_back() -> None:
    """Nobody is gone, and yet most of the model is."""
    world = World(dict.fromkeys("abc", WHOLE))
    await world.crawl()
    before = world.seen
    assert before is not None
    for name in "abc":
        world.served[name] = Span(0, 2)
        world.write(name, Span(0, 2))
    await world.crawl()
    verdict = judged(world, before)
    assert isinstance(verdict, Hold) and verdict.confirmable
    assert verdict.reason == "3 of 3 servers were gone or held fewer blocks at once"


async def test_a_move_that_leaves_no_block_bare_is_no_loss() -> None:
    world = World({"a": WHOLE, "b": WHOLE, "c": Span(0, 3)})
    await world.crawl()
    before = world.seen
    for name, new in (("a", Span(3, 6)), ("b", Span(0, 3)), ("c", Span(2, 4))):
        world.served[name] = new
        world.write(name, new)
    await world.crawl()
    assert before is not None and world.seen is not None
    assert lost_between(before, world.seen) == frozenset() and judged(world, before) == Publish()


@pytest.mark.parametrize("state", [ServerState.OFFLINE, ServerState.JOINING])
async def test_a_forged_state_and_a_missed_crawl_do_not_hide_a_server_that_answers(state: ServerState) -> None:
    world = World({"a": WHOLE})
    await world.crawl()
    world.write("a", WHOLE, state)
    assert (await world.server()).state is PeerState.ONLINE
    world.losing["a"] = 2
    assert (await world.server()).state is not PeerState.ONLINE
    for _ in range(2):
        server = await world.server()
        assert server.state is PeerState.ONLINE and server.conflict.startswith("its record says")


@pytest.mark.parametrize("state", [ServerState.OFFLINE, ServerState.JOINING])
async def test_a_new_server_under_a_forged_state_is_found(state: ServerState) -> None:
    world = World({"a": WHOLE})
    world.write("a", WHOLE, state)
    server = await world.server()
    assert server.state is PeerState.ONLINE and server.conflict


HOLE = (Span(3, 6),)


async def test_a_made_up_server_that_is_said_to_load_holds_no_block() -> None:
    world = World({"a": Span(0, 3)})
    world.write("ghost", Span(3, 6), ServerState.JOINING)
    server = await world.server("ghost")
    assert server.state is PeerState.JOINING and not server.awaited
    assert world.seen is not None and find_holes(world.seen.models[0]) == HOLE


async def test_a_peer_that_says_for_too_long_that_it_loads_holds_no_block_any_more() -> None:
    world = World({"a": Span(0, 3), "loader": None})
    world.write("loader", Span(3, 6), ServerState.JOINING)
    assert find_holes(await world.crawl()) == ()
    assert find_holes(await world.crawl(SLOW_AFTER_S)) == (), "it may still come"
    assert find_holes(await world.crawl()) == HOLE, "others are asked as well"
    assert (await world.server("loader")).awaited, "and people are told that it loads"
    model = await world.crawl(LOADING_LIMIT_S - SLOW_AFTER_S)
    assert find_holes(model) == HOLE and coverage(model).holes == HOLE and not (await world.server("loader")).awaited
    promise = Promise(peer_id("loader"), Span(3, 6))
    assert find_holes(model, [promise]) == (), "a lease counts by its own terms"
    world.served["loader"] = Span(3, 6)
    world.write("loader", Span(3, 6))
    assert (await world.server("loader")).state is PeerState.ONLINE, "it has come after all"
    world.served["loader"] = None
    world.write("loader", Span(3, 6), ServerState.JOINING)
    assert find_holes(await world.crawl()) == (), "and counts from anew when it loads again"


async def test_one_lost_dial_of_the_only_server_changes_nothing() -> None:
    world = World({"a": WHOLE, "b": Span(0, 3)})
    await world.crawl()
    world.losing["a"] = 1
    model = await world.crawl()
    assert coverage(model).holes == () and all(server.state is PeerState.ONLINE for server in model.servers)


@pytest.mark.parametrize("gone", [1, 2, 5])
async def test_a_real_loss_is_seen_in_the_same_crawl_and_costs_each_server_one_more_dial(gone: int) -> None:
    world = World({**{f"s{n}": WHOLE for n in range(gone)}, "b": Span(0, 3)})
    await world.crawl()
    for n in range(gone):
        world.losing[f"s{n}"] = 99
    model = await world.crawl()
    assert coverage(model).holes == HOLE
    assert len(world.asked) == 2 * gone + 1
    await world.crawl()
    assert len(world.asked) == gone + 1, "who was silent last time is asked once"


@given(st.lists(st.sampled_from(list(spans())), min_size=1, max_size=4), st.sampled_from(list(spans())))
def test_whatever_is_written_nobody_counts_for_a_block_whose_edge_it_denies(written: list[Span], held: Span) -> None:
    async def run() -> None:
        world = World({"a": held})
        await world.crawl()
        for span in written:
            world.write("a", span)
            server = await world.server()
            assert (server.state, server.span) == (PeerState.ONLINE, held)

    asyncio.run(run())
