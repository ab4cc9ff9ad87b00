"""The life of a server on a real DHT on loopback, seen by a reader and by a client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.discovery import RouteFinder
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from swarm.dht.probe import visit
from swarm.dht.reading import read_index
from swarm.snapshot import PeerState
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span
from tests.blockserver.coordinators import STAY, coordinator, move
from tests.blockserver.living import PREFIX, config, online, serving, until
from tests.loopback import nodes, reader_of


@pytest.fixture
def folder(tiny: tuple[Path, PreTrainedModel]) -> Path:
    return tiny[0]


async def test_a_server_says_online_when_it_answers_and_leaving_when_it_goes(folder: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        async with serving(await config(boot, folder, num_blocks=4, ready_file=ready, public_name="me")):
            seen = await until(reader, online(Span(0, 4)))
            (server,) = seen.servers
            assert (await visit(reader.p2p, server.peer_id, PREFIX, Span(0, 4))).answered
            assert server.record.public_name == "me"
            assert server.record.throughput is not None
            assert server.record.cache_tokens_left == 2 * 4 * 4096
            assert (await read_index(reader))[0] == {PREFIX: ModelRecord(6, None)}
            await until(reader, lambda _: ready.exists())
            told = json.loads(ready.read_text())
            assert (told["peer_id"], told["span"]) == (server.peer_id, [0, 4])
            assert told["reason"] == "blocks 0–3, decided by this server: blocks 0–3 have no server"
        left = await until(reader, lambda seen: seen.servers[0].state is PeerState.LEAVING)
        assert left.servers[0].peer_id == server.peer_id


async def test_servers_that_come_one_by_one_cover_the_model_and_a_client_generates(
    tiny: tuple[Path, PreTrainedModel],
) -> None:
    folder, whole = tiny
    prompt = [5, 17, 42]
    expected = whole.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)[0, len(prompt) :].tolist()
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        made = await config(boot, folder, num_blocks=4)
        async with serving(made):
            await until(reader, online(Span(0, 4)))
            async with serving(made):
                await until(reader, online(Span(0, 4), Span(2, 6)))
                finder = RouteFinder(reader, PREFIX, 6)
                async with RemoteModel.load(folder, reader.p2p, finder, prefix=PREFIX, dtype=torch.float32) as model:
                    tokens = [token async for token in model.generate(prompt, Sampling(max_new_tokens=8))]
    assert tokens == expected[: len(tokens)]
    assert len(tokens) == 8 or tokens[-1] in model.stop_ids


async def test_a_lease_is_accepted_before_anything_is_unloaded_and_then_exactly_served(folder: Path) -> None:
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=2, coordinator=told.url)):
                await until(reader, online(Span(0, 2)))
                told.answers["/api/v1/hint"] = move(3, 5)
                moved = await until(reader, online(Span(3, 5)))
                told.answers["/api/v1/hint"] = STAY
                assert len(moved.servers) == 1
                assert (await visit(reader.p2p, moved.servers[0].peer_id, PREFIX, Span(3, 5))).answered
                assert not (await visit(reader.p2p, moved.servers[0].peer_id, PREFIX, Span(0, 2))).answered
        asked = [path for path, _ in told.asked]
        assert "/api/v1/lease/lease-1/accept" in asked


async def test_a_stale_lease_moves_nobody(folder: Path) -> None:
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "stale", "reason": "meanwhile …"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=2, coordinator=told.url)):
                await until(reader, online(Span(0, 2)))
                told.answers["/api/v1/hint"] = move(3, 5)
                await until(reader, lambda _: sum(path.endswith("/accept") for path, _ in told.asked) >= 2)
                assert online(Span(0, 2))(await until(reader, lambda seen: bool(seen.servers)))


async def test_a_server_with_fixed_blocks_serves_those_and_asks_nobody(folder: Path) -> None:
    with coordinator() as told:
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, block_indices=Span(1, 3), coordinator=told.url)):
                await until(reader, online(Span(1, 3)))
        assert told.asked == []
