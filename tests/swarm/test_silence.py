"""Who is silent is waited for once in a crawl, is asked again in the next one, and makes no key look empty."""

from __future__ import annotations

import asyncio

import pytest
from hivemind.dht.routing import DHTID
from hivemind.p2p import PeerID
from hivemind.proto import dht_pb2

from swarm.dht import bulk, entrances
from swarm.dht.canary import sings
from swarm.dht.node import NodeConfig, start_node
from swarm.dht.reading import read_keys
from swarm.dht.roll_call import call_the_roll
from swarm.dht.silence import Silence
from swarm.wire.codec import encode
from tests.loopback import frozen, nodes, plant, reader_of
from tests.swarm.asked import asked_of
from tests.swarm.test_foreign import Stub, reader
from tests.swarms import peer_id

PATIENCE_S = 30.0
KEY = "m.0"


def test_who_speaks_is_not_silent_and_who_was_silent_is_a_suspect_in_the_next_crawl() -> None:
    silence, a, b = Silence(), PeerID.from_base58(peer_id("a")), PeerID.from_base58(peer_id("b"))
    silence.fell(a)
    silence.fell(b)
    silence.spoke(b)
    assert a in silence and b not in silence and silence.heard(b) and not silence.heard(a)
    silence.begin()
    assert silence.suspects == (a,) and a not in silence and not silence.heard(b)


def test_where_nobody_speaks_everybody_gets_one_second_chance() -> None:
    silence, a, b = Silence(), PeerID.from_base58(peer_id("a")), PeerID.from_base58(peer_id("b"))
    silence.fell(a)
    silence.forgive([a, b])
    assert a in silence, "b may answer"
    silence.forgive([a])
    assert a not in silence
    silence.fell(a)
    silence.forgive([a])
    assert a in silence, "once in a crawl"


@pytest.mark.slow
async def test_frozen_nodes_are_asked_once_by_all_reads_of_a_crawl_and_seen_in_the_next_one_if_they_are_back() -> None:
    async with nodes(7) as (boot, *others), reader_of(boot) as ours:
        for node in others[1:]:
            assert await plant(boot, node, KEY, peer_id("a"), encode("here"))
        silence, still = Silence(), others[:3]

        async def reads() -> None:
            silence.begin()
            await asyncio.gather(entrances.look(ours, silence=silence), call_the_roll(ours, silence))
            assert await sings(ours, silence)
            for _ in range(2):
                reading = await read_keys(ours, [KEY, "m.1", "n.7"], silence=silence)
                assert not reading.unread and [entry.subkey for entry in reading.entries[KEY]] == [peer_id("a")]

        with frozen(*still):
            with asked_of(ours) as asked:
                await reads()
            assert {node.peer_id: asked[node.peer_id] for node in still} == {node.peer_id: 1 for node in still}
            assert all(node.p2p.peer_id in silence for node in still)
        await reads()
        assert not any(node.p2p.peer_id in silence for node in others), "who is back is seen at once"
        assert {node.peer_id for node in still} <= ours.known_peers()


async def test_a_key_that_only_silent_nodes_could_be_asked_for_is_unread_and_nobody_is_waited_for() -> None:
    async with nodes(2) as swarm, reader_of(swarm[0]) as ours:
        assert await read_keys(ours, [KEY]) == await read_keys(ours, [KEY], silence=Silence())
        silence = Silence()
        for node in swarm:
            silence.fell(node.p2p.peer_id)
        with asked_of(ours) as asked:
            assert (await read_keys(ours, [KEY], silence=silence)).unread == {KEY}
            assert not await sings(ours, silence)
        assert not asked


@pytest.mark.slow
async def test_a_silent_bootstrap_peer_is_asked_once_and_its_scout_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrances, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(entrances, "LOOK_ENDS_WITHIN_S", 1.0)
    monkeypatch.setattr(entrances, "SCOUTS_END_WITHIN_S", 10 * PATIENCE_S)
    scouted = asyncio.Event()

    async def hangs(address: str, relay: bool) -> entrances.Found:
        await scouted.wait()
        return entrances.Found(False, "late")

    monkeypatch.setattr(entrances, "ask_through", hangs)
    async with nodes(2) as (boot, other):
        ours = await start_node(NodeConfig((*await boot.addresses(), *await other.addresses()), client_mode=True))
        scouts, silence = entrances.Scouts(), Silence()
        try:
            with frozen(other), asked_of(ours) as asked:
                looks = asyncio.gather(entrances.look(ours, scouts, silence), call_the_roll(ours, silence))
                (states, _), _ = await asyncio.wait_for(looks, PATIENCE_S)
            assert entrances.peers_up(states) == {boot.peer_id: True, other.peer_id: False}
            assert asked[other.peer_id] == 1 and other.p2p.peer_id in silence and scouts.trying
            scouted.set()
            await asyncio.gather(*scouts.trying.values())
            assert {found.detail for _, found in scouts.found.values()} == {"late"}, "it counts in the next look"
        finally:
            await ours.stop()


class Waits(Stub):
    """Answers for keys as soon as `until` is set; the smallest question at once, if at all."""

    def __init__(self, until: asyncio.Event, tells: asyncio.Event | None = None, smallest: bool = True) -> None:
        super().__init__()
        self.until, self.tells, self.smallest = until, tells, smallest

    async def rpc_find(self, request: dht_pb2.FindRequest, timeout: float) -> dht_pb2.FindResponse:  # noqa: ASYNC109
        if self.tells is not None and not request.keys:
            self.tells.set()
        if request.keys or not self.smallest:
            await self.until.wait()
        return await super().rpc_find(request, timeout)


async def test_the_smallest_question_is_asked_while_the_large_one_is_overdue_and_not_after_it() -> None:
    asked_the_smallest = asyncio.Event()
    found = await bulk.find(reader(Waits(asked_the_smallest, asked_the_smallest)), [DHTID.generate(KEY)], PATIENCE_S)
    assert len(found.results) == 1 and not found.too_large, "both were under way at the same time"


async def test_while_strangers_are_silent_the_next_nearest_are_asked_and_late_answers_still_count() -> None:
    """One after another, the silences of those that nodes name would add up."""
    count, key = 2 * bulk.REPLICAS, DHTID.generate(KEY)
    nearest = sorted(range(count), key=lambda n: key.xor_distance(DHTID.generate(f"node {n}")))[: bulk.REPLICAS]
    others_asked = asyncio.Event()

    class Other(Stub):
        async def rpc_find(self, request: dht_pb2.FindRequest, timeout: float) -> dht_pb2.FindResponse:  # noqa: ASYNC109
            others_asked.set()
            return await super().rpc_find(request, timeout)

    stubs = [Waits(others_asked, smallest=False) if n in nearest else Other() for n in range(count)]
    found = await bulk.find(reader(*stubs), [key], PATIENCE_S)
    assert len(found.results[key]) >= bulk.FIRST_REPLICAS + bulk.FIRST_REPLICAS, "theirs, and those of whom they kept waiting"


async def test_who_answers_the_smallest_question_only_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CALL_TIMEOUT_S", 1.0)
    monkeypatch.setattr(bulk, "OVERDUE_S", 0.1)
    never, silence = asyncio.Event(), Silence()
    ours = reader(Waits(never))
    found = await bulk.find(ours, [DHTID.generate(KEY)], PATIENCE_S, silence=silence)
    (peer,) = ours.dht.protocol.routing_table.uid_to_peer_id.values()
    assert found.too_large == {DHTID.generate(KEY)} and not found.results and peer not in silence and silence.heard(peer)


async def test_who_was_silent_last_time_is_called_even_where_nobody_names_it() -> None:
    """In a large swarm the neighbours of the keys that come first do not name everybody."""
    async with nodes(2) as (boot, other), reader_of(boot) as ours:
        silence, gone = Silence(), PeerID.from_base58(peer_id("gone"))
        silence.fell(gone)
        silence.begin()
        with asked_of(ours) as asked:
            await call_the_roll(ours, silence)
        assert asked == {peer_id("gone"): 1, other.peer_id: 1}, "bootstrap peers are asked by the look at the entrances"
        assert silence.heard(other.p2p.peer_id)
