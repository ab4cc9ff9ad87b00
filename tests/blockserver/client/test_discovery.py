"""Routes out of a real DHT on loopback: measured ways, room, bans, and what is said where blocks are missing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from blockserver.client.discovery import MOST_DOUBTS, UNREACHED_S, RouteFinder, candidates
from blockserver.client.no_server import no_server
from swarm.dht.declare import declare_server
from swarm.dht.node import Node
from swarm.errors import MissingBlocks
from swarm.routing import Wanted
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.blockserver.coordinators import coordinator
from tests.blockserver.living import config, online, serving, until
from tests.loopback import nodes, reader_of
from tests.swarms import peer_id

WHOLE = Span(0, 6)
NOON = 1_700_000_000.0
"""22:13 UTC, 14 November 2023."""


def record(span: Span, **more: object) -> ServerRecord:
    return replace(ServerRecord(ServerState.ONLINE, 10.0, span=span, inference_rps=100.0), **more)  # type: ignore[arg-type]


def server(name: str, span: Span, state: PeerState = PeerState.ONLINE, expires_at: float = NOON + 60) -> Server:
    return Server(peer_id(name), span, state, record(span, cache_tokens_left=5, torch_dtype="float16"), expires_at)


async def test_only_servers_that_are_online_and_whose_record_lasts_are_candidates() -> None:
    states = [s for s in PeerState if s is not PeerState.ONLINE]
    servers = [server("a", WHOLE), server("old", WHOLE, expires_at=NOON), *(server(s, WHOLE, s) for s in states)]
    [found] = candidates(Model("tiny", 6, None, tuple(servers)), NOON)
    assert (found.peer_id, found.blocks_per_s, found.cache_tokens_left, found.dtype) == (peer_id("a"), 100.0, 5, "float16")


async def test_a_route_goes_by_what_servers_say_when_they_are_called(tiny: tuple[Path, PreTrainedModel]) -> None:
    """A forged record promises more, but nobody answers for it; the rest is one real server and its real figures."""
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        async with serving(await config(boot, tiny[0], num_blocks=6, cache_tokens=512)):
            await until(reader, online(WHOLE))
            forged = record(WHOLE, inference_rps=1e6)
            await declare_server(reader, "tiny", WHOLE, forged, 60.0)
            finder = RouteFinder(reader, "tiny", 6)
            [hop] = await finder.find(Wanted(WHOLE, cache_tokens=100))
            assert hop.peer_id != reader.peer_id
            real, unreached = finder.about(hop.peer_id), finder.about(reader.peer_id)
            assert real is not None and unreached is not None
            assert real.round_trip_s is not None and 0 < real.round_trip_s < UNREACHED_S
            assert (real.cache_tokens_left, real.dtype) == (2 * 6 * 512, "float32")
            assert unreached.round_trip_s == UNREACHED_S
            await finder.close()


async def test_a_banned_server_is_passed_over_until_it_is_forgiven_and_doubts_lead_to_a_new_look() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        await declare_server(reader, "tiny", WHOLE, record(WHOLE), 60.0)
        finder = RouteFinder(reader, "tiny", 6, monitor="http://127.0.0.1:9")
        finder._pinged_at = time.monotonic()
        assert await finder.find(Wanted(WHOLE))
        finder.failed(reader.peer_id)
        with pytest.raises(
            MissingBlocks, match=r"blocks 0–5 have no server since \d\d:\d\d UTC; see http://127.0.0.1:9/m/tiny"
        ):
            await finder.find(Wanted(WHOLE))
        finder.forgive()
        assert await finder.find(Wanted(WHOLE))
        before = finder._seen
        for _ in range(MOST_DOUBTS):
            finder.failed(reader.peer_id)
        finder.worked(reader.peer_id)
        assert await finder.find(Wanted(WHOLE))
        assert finder._seen is not before


async def test_allowed_and_blocked_peers_hold_for_all_routes_of_a_finder() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader, reader_of(boot) as other:
        for node in (reader, other):
            await declare_server(node, "tiny", WHOLE, record(WHOLE), 60.0)
        for limits, allowed in (({"allowed": [other.peer_id]}, other), ({"blocked": [other.peer_id]}, reader)):
            finder = _unpinged(reader, **limits)
            for route in (await finder.find(Wanted(WHOLE)), await finder.find_for_training(Wanted(WHOLE))):
                assert [hop.peer_id for hop in route] == [allowed.peer_id]
            with pytest.raises(MissingBlocks):
                await finder.find(Wanted(WHOLE, blocked=frozenset({allowed.peer_id})))


def _unpinged(reader: Node, **limits: list[str]) -> RouteFinder:
    finder = RouteFinder(reader, "tiny", 6, seed=1, **limits)
    finder._pinged_at = time.monotonic()
    return finder


async def test_the_monitor_says_since_when_blocks_are_missing() -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        with coordinator() as told:
            items = [{"prefix": "tiny", "verdict": "broken", "since": "2023-11-14T22:13:00Z"}]
            told.answers["/api/v1/models"] = {"items": items}
            finder = RouteFinder(reader, "tiny", 6, monitor=told.url)
            with pytest.raises(MissingBlocks, match="since 2023-11-14 22:13 UTC; see ") as caught:
                await finder.find(Wanted(WHOLE))
            assert f"{told.url}/m/tiny" in str(caught.value)
            told.answers["/api/v1/models"] = {"items": [{**items[0], "verdict": "complete"}]}
            with pytest.raises(MissingBlocks, match=r"since \d\d:\d\d UTC"):
                await finder.find(Wanted(WHOLE))


@pytest.mark.parametrize(
    ("blocks", "more", "sentence"),
    [
        ([3], {}, "block 3 has no server since 22:13 UTC"),
        ([4, 3, 9], {"page": "http://site/m/x"}, "blocks 3–4, 9 have no server since 22:13 UTC; see http://site/m/x"),
        ([3], {"now": NOON + 1e5}, "block 3 has no server since 2023-11-14 22:13 UTC"),
        ([3], {"last_words": "busy"}, "block 3 has no server that answers since 22:13 UTC (the last one: busy)"),
    ],
)
def test_the_sentence(blocks: list[int], more: dict[str, object], sentence: str) -> None:
    error = no_server(blocks, NOON, **{"now": NOON + 60, **more})  # type: ignore[arg-type]
    assert str(error) == sentence
    assert error.blocks == tuple(sorted(blocks))
