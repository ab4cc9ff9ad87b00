"""A server whose operator offers two models: it serves one at a time, and changes for a lease only."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import P2PHandlerError
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer
from transformers import PreTrainedModel

from blockserver.config import AlsoModel, ServeConfig, parse_also
from blockserver.model.blocks import SpanModule
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.serving import announce, loading
from blockserver.serving.advice import Adviser, Candidate, Decision
from blockserver.serving.announce import Announcer
from blockserver.serving.hint_client import HintClient
from blockserver.serving.repertoire import repertoire_of
from blockserver.serving.server import serve
from swarm.dht.node import Node
from swarm.dht.probe import INFO_RPC
from swarm.dht.reading import read_index
from swarm.errors import LocalError
from swarm.snapshot import Model, PeerState
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.blockserver.coordinators import STAY, Coordinator, coordinator, move
from tests.blockserver.living import config, eventually, info, online, serving, until
from tests.loopback import nodes, reader_of
from tests.swarms import model, peer_id, server
from tests.tiny_models import save_tiny_model

FORWARD_RPC = "TransformerConnectionHandler.rpc_forward"
ACCEPT = "/api/v1/lease/lease-1/accept"
OK = {"outcome": "ok", "reason": "…"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of another family, of the same number of blocks."""
    folder = tmp_path_factory.mktemp("models") / "other"
    save_tiny_model(folder, "qwen3")
    return folder


@pytest.fixture
def folder(tiny: tuple[Path, PreTrainedModel]) -> Path:
    return tiny[0]


def said(told: Coordinator, step: str) -> list[dict[str, Any]]:
    return [body for path, body in told.asked if path.endswith(f"/{step}")]


async def refused(reader: Node, peer: str, uid: str) -> str:
    """What the server says to a forward pass through this block."""
    request = runtime_pb2.ExpertRequest(uid=uid, metadata=MSGPackSerializer.dumps({}))
    with pytest.raises(P2PHandlerError) as caught:
        await reader.p2p.call_protobuf_handler(PeerID.from_base58(peer), FORWARD_RPC, request, runtime_pb2.ExpertResponse)
    return str(caught.value)


async def holds(reader: Node, peer: str, uid: str) -> bool:
    request = runtime_pb2.ExpertUID(uid=uid)
    try:
        await reader.p2p.call_protobuf_handler(PeerID.from_base58(peer), INFO_RPC, request, runtime_pb2.ExpertInfo)
    except P2PHandlerError:
        return False
    return True


class Gate:
    """Holds up loading, and makes the model in `broken` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.broken: Path | None = None
        self._load = loading.load
        monkeypatch.setattr(loading, "load", self.load)

    async def load(self, config: Any, *arguments: Any, **more: Any) -> SpanModule:
        await self.open.wait()
        if config.model == self.broken:
            raise RuntimeError("out of memory")
        return await self._load(config, *arguments, **more)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


ALL = {"on_disk": [{"start": 0, "end": 6}]}
"""Of a model in a folder."""


async def test_it_changes_its_model_for_a_lease_and_serves_and_announces_one_at_a_time(
    folder: Path, other: Path, gate: Gate, tmp_path: Path
) -> None:
    ready = tmp_path / "ready.json"
    with coordinator() as told:
        told.answers[ACCEPT] = OK
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            made = await config(
                boot,
                folder,
                also=(AlsoModel(other),),
                num_blocks=4,
                coordinator=told.url,
                ready_file=ready,
                update_period_s=0.5,
            )
            async with serving(made):
                (first,) = (await until(reader, online(Span(0, 4)))).servers
                peer = first.peer_id
                assert (await read_index(reader))[0] == {"tiny": ModelRecord(6, None)}, "what it only offers is not announced"
                await eventually(ready.exists)  # It is written when all has been announced, the blocks first.
                assert json.loads(ready.read_text())["model"] == "tiny"
                asked = said(told, "hint")[-1]
                assert (asked["model"], asked["also"]) == ("tiny", [{"model": "other", "num_blocks_max": 4, **ALL}])

                gate.open.clear()
                told.answers["/api/v1/hint"] = move(2, 6, "other")
                await until(reader, lambda seen: bool(seen.servers), prefix="other")
                (left,) = (await until(reader, lambda seen: bool(seen.servers))).servers
                assert left.state is PeerState.LEAVING, "no client comes for the old blocks when the new ones are announced"
                assert said(told, "accept")[0]["current"] == {"start": 0, "end": 4}
                assert "holds no blocks at the moment" in await refused(reader, peer, "other.2")
                assert (await info(reader, peer))["state"] == "joining"

                gate.open.set()
                told.answers["/api/v1/hint"] = STAY
                await until(reader, online(Span(2, 6)), prefix="other")
                assert [await holds(reader, peer, uid) for uid in ("tiny.0", "tiny.2", "other.2", "other.0")] == [
                    False, False, True, False,
                ]  # fmt: skip
                assert "is no block of other, the model served here" in await refused(reader, peer, "tiny.2")
                later = len(said(told, "hint"))
                await eventually(lambda: len(said(told, "hint")) > later)
                asked = said(told, "hint")[-1]
                assert (asked["model"], asked["current"]) == ("other", {"start": 2, "end": 6})
                assert asked["also"] == [{"model": "tiny", "num_blocks_max": 4, **ALL}]
                told_ready = json.loads(ready.read_text())
                assert (told_ready["model"], told_ready["span"]) == ("other", [2, 6])
                seen = await until(reader, lambda seen: bool(seen.servers))
                assert seen.servers[0].state is PeerState.LEAVING, "the announcements that go on are of the new model"


async def test_a_change_that_fails_goes_back_to_the_old_model_and_says_why(folder: Path, other: Path, gate: Gate) -> None:
    gate.broken = other
    with coordinator() as told:
        told.answers[ACCEPT] = OK
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            made = await config(boot, folder, also=(AlsoModel(other),), num_blocks=4, coordinator=told.url)
            async with serving(made):
                (here,) = (await until(reader, online(Span(0, 4)))).servers
                told.answers["/api/v1/hint"] = move(0, 4, "other")
                await eventually(lambda: len(said(told, "decline")) >= 2)
                await until(reader, online(Span(0, 4)))
                assert await holds(reader, here.peer_id, "tiny.0") and not await holds(reader, here.peer_id, "other.0")
                (gone,) = (await until(reader, lambda seen: bool(seen.servers), prefix="other")).servers
                assert gone.state is PeerState.LEAVING
                assert said(told, "decline")[0]["reason"] == "failed: out of memory"
                assert len(said(told, "accept")) == 1, "the same blocks of the same model are not tried again"


async def test_a_lease_for_a_model_that_is_not_offered_is_passed_over(folder: Path) -> None:
    with coordinator() as told:
        told.answers["/api/v1/hint"] = move(0, 4, "a-strangers-model")
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=4, coordinator=told.url)):
                await until(reader, online(Span(0, 4)))
                await eventually(lambda: len(said(told, "hint")) >= 3)
        assert said(told, "accept") == [] and said(told, "decline") == []


async def test_without_a_coordinator_an_arrival_goes_where_it_is_needed_most(folder: Path, other: Path) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        first = await config(boot, folder, num_blocks=6, block_indices=Span(0, 6))
        async with serving(first):
            await until(reader, online(Span(0, 6)))
            async with serving(await config(boot, folder, also=(AlsoModel(other, "by-another-name"),), num_blocks=6)):
                await until(reader, online(Span(0, 6)), prefix="by-another-name")


# --------------------------------------------------------------------------------------------------------- adviser, alone


def candidate(prefix: str, swarm: Model, on_disk: tuple[Span, ...] = ()) -> Candidate:
    async def view() -> Model:
        return replace(swarm, prefix=prefix)

    return Candidate(prefix, 8, swarm.num_blocks, view, on_disk=lambda: on_disk)


def adviser(*candidates: Candidate, hints: HintClient | None = None) -> Adviser:
    return Adviser(peer_id("me"), candidates, hints, fallback_after_s=1.0, confirm_s=0.0)


async def test_a_serving_server_without_a_coordinator_stays_with_its_model() -> None:
    whole = model(8, server("me", 0, 8), server("a", 0, 8), server("b", 0, 8))
    alone = adviser(candidate("first", whole), candidate("second", model(8)))
    arrived: Decision = await alone.arrive()
    assert (arrived.prefix, arrived.placement.span) == ("second", Span(0, 8))
    assert arrived.placement.reason == "second: blocks 0–7 have no server; it gains more by this server than first"
    for _ in range(3):
        assert await alone.reconsider("first", Span(0, 8)) is None


async def test_of_models_that_need_it_alike_a_server_alone_takes_the_one_on_its_disk() -> None:
    whole = model(8, server("a", 0, 8), server("b", 0, 8))
    assert (await adviser(candidate("first", whole), candidate("second", whole)).arrive()).prefix == "first"
    there = adviser(candidate("first", whole), candidate("second", whole, (Span(0, 8),)))
    assert (await there.arrive()).prefix == "second"


async def test_a_question_says_what_of_the_other_models_needs_no_download_also_while_serving() -> None:
    whole = model(8, server("me", 0, 8), server("a", 0, 8))
    with coordinator() as told:
        async with HintClient(told.url) as hints:
            asking = adviser(candidate("first", whole), candidate("second", whole, (Span(5, 6), Span(0, 4))), hints=hints)
            await asking.reconsider("first", Span(0, 8))
    (_, asked), *_ = told.asked
    kept = [{"start": 0, "end": 4}, {"start": 5, "end": 6}]
    assert asked["also"] == [{"model": "second", "num_blocks_max": 8, "on_disk": kept}]


# ------------------------------------------------------------------------------------------------------------ announcing


async def test_a_round_under_way_does_not_bring_the_old_model_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An announcement of the old model that ends after the change would call clients to blocks that are gone."""
    stored: dict[str, ServerState] = {}
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def store(node: Node, prefix: str, span: Span, record: ServerRecord, life_s: float) -> int:
        if record.state is ServerState.ONLINE:
            under_way.set()
            await go_on.wait()
        stored[prefix] = record.state
        return len(span)

    async def declare_model(*_: object) -> None:
        pass

    monkeypatch.setattr(announce, "declare_server", store)
    monkeypatch.setattr(announce, "declare_model", declare_model)
    record = ServerRecord(ServerState.JOINING, 1.0, Span(0, 4))
    announcer = Announcer(None, "old", ModelRecord(4, None), lambda: record, 60.0)  # type: ignore[arg-type]
    saying = asyncio.create_task(announcer.say(ServerState.ONLINE, Span(0, 4)))
    await under_way.wait()
    await announcer.change_model("new", ModelRecord(8, None))
    assert stored == {"old": ServerState.OFFLINE} and announcer.said is None
    go_on.set()
    await saying
    assert stored == {"old": ServerState.OFFLINE}


async def test_a_handler_changes_its_model_only_when_it_holds_no_blocks() -> None:
    held = cast(Any, object())
    handler = TransformerConnectionHandler(held, "old", held, version="1", dht_client_mode=False)
    with pytest.raises(LocalError, match="still served"):
        handler.set_prefix("new")


# -------------------------------------------------------------------------------------------------- what an operator may say


def test_a_further_model_is_written_like_the_first_one_with_its_name_behind_it() -> None:
    assert parse_also("owner/name") == AlsoModel(Path("owner/name"))
    assert parse_also("/models/a=b=tiny-b") == AlsoModel(Path("/models/a=b"), "tiny-b")
    for text in ("", "=tiny", "model="):
        with pytest.raises(LocalError, match="--also"):
            parse_also(text)


def settings(folder: Path, **more: Any) -> ServeConfig:
    return ServeConfig(model=folder, initial_peers=("/ip4/127.0.0.1/tcp/1/p2p/x",), dtype="float32", **more)


def test_fixed_blocks_and_further_models_contradict_each_other(folder: Path) -> None:
    with pytest.raises(LocalError, match="--block-indices and --also contradict each other"):
        settings(folder, block_indices=Span(0, 4), also=(AlsoModel(folder),))
    with pytest.raises(LocalError, match="more than the 8"):
        settings(folder, also=tuple(AlsoModel(folder, f"m{n}") for n in range(9)))
    with pytest.raises(LocalError, match=r"--also .*=not a name"):
        settings(folder, also=(AlsoModel(folder, "not a name"),))


def test_a_repertoire_is_worked_out_before_anything_is_announced(folder: Path, other: Path) -> None:
    first, second = repertoire_of(settings(folder, also=(AlsoModel(other),), num_blocks=4, revision="a-tag"))
    assert (first.prefix, second.prefix) == ("tiny", "other") and first.num_blocks == second.num_blocks == 4
    assert (second.config.model, second.config.also, second.config.revision) == (other, (), None)
    assert second.dtype is torch.float32 and second.facts.num_blocks == 6
    assert second.blocks_on_disk() == (Span(0, 6),), "nothing of a folder is ever downloaded"
    with pytest.raises(LocalError, match=r"two of the models are called tiny: .*--also MODEL=PREFIX"):
        repertoire_of(settings(folder, also=(AlsoModel(folder),)))


async def test_a_further_model_that_cannot_be_served_ends_the_start_with_its_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LocalError, match=r"--also .*/empty: .* holds no config\.json"):
        await serve(settings(folder, also=(AlsoModel(tmp_path / "empty"),)), asyncio.Event())
