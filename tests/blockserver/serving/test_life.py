"""What a server says of itself on its way, what keeps it from going ONLINE, and what it does not do."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hivemind.p2p import P2PContext
from hivemind.proto import dht_pb2
from hivemind.utils import MSGPackSerializer
from transformers import PreTrainedModel

from blockserver.model.blocks import SpanModule
from blockserver.rpc.reachability import ReachabilityProtocol
from blockserver.serving import life, loading
from blockserver.serving.neighbours import Ways
from blockserver.serving.repertoire import Offer
from blockserver.serving.server import serve
from swarm.dht.reading import read_index
from swarm.errors import LocalError, Unreachable
from swarm.snapshot import PeerState
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span
from tests.blockserver.coordinators import STAY, Coordinator, coordinator, move
from tests.blockserver.living import PREFIX, config, eventually, info, online, serving, until
from tests.loopback import nodes, plant, reader_of


@pytest.fixture
def folder(tiny: tuple[Path, PreTrainedModel]) -> Path:
    return tiny[0]


class Loads:
    """Loading as a test wants it: `gate` holds it up at 62 %, `broken` spans fail, `poison` makes no numbers of weights."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken: dict[Span, Exception] = {}
        self.poison = False

    async def load(
        self, config: Any, facts: Any, span: Span, dtype: torch.dtype, progress: Any, reuse: Any = None
    ) -> SpanModule:
        progress(62, 100, 1.0)
        module = await _load(config, facts, span, dtype, lambda done, total, seconds: None)
        await self.gate.wait()
        if span in self.broken:
            raise self.broken[span]
        if self.poison:
            for weight in module._model.parameters():
                weight.data.fill_(float("nan"))
        return module


_load = loading.load


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    made = Loads()
    monkeypatch.setattr(loading, "load", made.load)
    return made


def said(told: Coordinator, step: str) -> list[dict[str, Any]]:
    return [body for path, body in told.asked if path.endswith(f"/{step}")]


async def test_progress_is_told_while_blocks_load_and_the_truth_afterwards(folder: Path, loads: Loads, tmp_path: Path) -> None:
    loads.gate.clear()
    with coordinator() as told:
        told.answers["/api/v1/hint"] = move(0, 4)
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            made = await config(boot, folder, num_blocks=4, coordinator=told.url, public_name="me", state_dir=tmp_path)
            async with serving(made):
                seen = await until(reader, lambda seen: bool(seen.servers))
                (server,) = seen.servers
                assert server.state is PeerState.JOINING
                answer = await info(reader, server.peer_id, lambda said: said["loading_progress"] is not None)
                assert (answer["state"], answer["start_block"], answer["end_block"]) == ("joining", 0, 4)
                assert answer["loading_progress"] == 0.62
                await eventually(lambda: bool(said(told, "progress")))
                assert said(told, "progress")[0]["progress"] == 0.62
                told.answers["/api/v1/hint"] = STAY
                loads.gate.set()
                await until(reader, online(Span(0, 4)))
                answer = await info(reader, server.peer_id)
        assert (answer["state"], answer["loading_progress"], answer["public_name"]) == ("online", None, "me")
        assert (answer["device"], answer["torch_dtype"], answer["sessions_active"]) == ("cpu", "float32", 0)
        assert (answer["cache_tokens"], answer["cache_tokens_available"]) == (4096, 2 * 4 * 4096)
        assert answer["inference_rps"] > 0 and answer["forward_rps"] > 0 and answer["network_rps"] is None
        assert answer["dht_client_mode"] is False


async def test_loading_goes_on_when_the_lease_has_run_out(
    folder: Path, loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was downloaded is paid for. The coordinator is not told of a lease any more that it has closed."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(life, "PROGRESS_PERIOD_S", 0.01)
    loads.gate.clear()
    with coordinator() as told:
        told.answers["/api/v1/hint"] = move(0, 4)
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        told.answers["/api/v1/lease/lease-1/progress"] = {"outcome": "stale", "reason": "the lease has run out or is closed"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=4, coordinator=told.url, state_dir=tmp_path)):
                await eventually(lambda: caplog.messages.count("joining: loading blocks 0–3 of tiny, 62 %") >= 5)
                assert len(said(told, "progress")) == 1
                assert "the lease has run out; loading goes on, since most of the work is done" in caplog.messages
                told.answers["/api/v1/hint"] = STAY
                loads.gate.set()
                await until(reader, online(Span(0, 4)))


async def test_blocks_that_give_no_numbers_never_go_online(folder: Path, loads: Loads) -> None:
    loads.poison = True
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        with pytest.raises(LocalError, match="self-check: blocks 0–3 cannot be served"):
            await serve(await config(boot, folder, num_blocks=4), asyncio.Event())
        (server,) = (await until(reader, lambda seen: bool(seen.servers))).servers
        assert server.state is PeerState.LEAVING


async def test_a_server_that_the_site_cannot_reach_stops_and_says_what_to_do(folder: Path) -> None:
    with coordinator() as told:

        class Closed(dict[str, Any]):
            def get(self, path: str, default: object = None) -> Any:
                if path.startswith("/api/v1/is_reachable/"):
                    return {"success": False, "message": "nothing accepts connections", "your_ip": "::1"}
                return super().get(path, default)

        told.answers = Closed(told.answers)
        async with nodes(1) as (boot,):
            made = await config(boot, folder, num_blocks=4, coordinator=told.url, reachable_within_s=0.1)
            with pytest.raises(Unreachable, match=r"nothing accepts connections\).*forward it.*sepal doctor"):
                await serve(made, asyncio.Event())
            assert told.read


async def test_a_site_that_cannot_say_keeps_nobody_from_serving(folder: Path) -> None:
    with coordinator() as told:
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=4, coordinator=told.url, reachable_within_s=0.1)):
                await until(reader, online(Span(0, 4)))
        assert [path.rsplit("/", 1)[0] for path, _ in told.read] == ["/api/v1/is_reachable"]


class Unreaching(ReachabilityProtocol):
    async def rpc_check(self, request: dht_pb2.PingRequest, context: P2PContext) -> dht_pb2.PingResponse:
        return dht_pb2.PingResponse(available=False)


Unreaching.__name__ = "ReachabilityProtocol"


@pytest.mark.parametrize("relay", [False, True])
async def test_peers_that_cannot_dial_a_server_send_it_to_a_relay_or_away(folder: Path, relay: bool) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        await Unreaching(boot.p2p).start()
        made = await config(boot, folder, num_blocks=4, relay=relay, reachable_within_s=0.1)
        if not relay:
            with pytest.raises(Unreachable, match="peers cannot reach it directly"):
                await serve(made, asyncio.Event())
            return
        async with serving(made):
            (server,) = (await until(reader, online(Span(0, 4)))).servers
            assert server.record.using_relay is True


async def test_a_lease_that_fills_no_hole_is_declined_too_soon_after_the_last_move(folder: Path) -> None:
    other = move(3, 5)
    other["lease"]["urgency"] = "arrival"
    with coordinator() as told:
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=2, coordinator=told.url)):
                await until(reader, online(Span(0, 2)))
                told.answers["/api/v1/hint"] = other
                await eventually(lambda: bool(said(told, "decline")))
                assert said(told, "decline")[0]["reason"].startswith("too-soon: ")
                assert said(told, "accept") == []
                assert online(Span(0, 2))(await until(reader, lambda seen: bool(seen.servers)))


async def test_a_lease_for_the_present_blocks_unloads_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=2, coordinator=told.url)):
                await until(reader, online(Span(0, 2)))
                told.answers["/api/v1/hint"] = move(0, 2)
                await eventually(lambda: len(said(told, "accept")) >= 2)
    assert caplog.text.count("ONLINE with") == 1
    assert "already serving blocks 0–1" in caplog.text


@pytest.mark.parametrize("error", [LocalError("a broken shard"), RuntimeError("out of memory")])
async def test_a_move_that_fails_goes_back_and_is_not_tried_again(folder: Path, loads: Loads, error: Exception) -> None:
    loads.broken = {Span(3, 5): error}
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=2, coordinator=told.url)):
                await until(reader, online(Span(0, 2)))
                told.answers["/api/v1/hint"] = move(3, 5)
                await eventually(lambda: len(said(told, "decline")) >= 2)
                await until(reader, online(Span(0, 2)))
                assert len(said(told, "accept")) == 1
                assert said(told, "accept")[0]["current"] == {"start": 0, "end": 2}, "what the offer depends on"
                declined = said(told, "decline")[0]
                assert (declined["reason"], declined["not_again_s"]) == (f"failed: {error}", 600.0)
                asked = [body for path, body in told.asked if path == "/api/v1/hint"]
                assert asked[0]["est_load_s"] is None, "not known before the first load"
                assert 0.0 < asked[-1]["est_load_s"] < 600.0


async def test_leases_that_cannot_be_loaded_end_no_server_and_unload_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model has 6 blocks, and 4 fit: a coordinator with a wrong idea of either, and one that has none at all."""
    caplog.set_level(logging.INFO)
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        told.answers["/api/v1/hint"] = move(8, 12)
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=4, coordinator=told.url)):
                await until(reader, online(Span(0, 4)))
                assert said(told, "decline")[0]["reason"] == "no-such-blocks: the model has blocks 0 to 5"
                for bad in (move(0, 5), move(5, 7), move(3, 3), move(4, 2)):
                    told.answers["/api/v1/hint"] = bad
                    asked = len(said(told, "hint"))
                    await eventually(lambda asked=asked: len(said(told, "hint")) >= asked + 3)  # type: ignore[misc]
                told.answers["/api/v1/hint"] = move(2, 6)
                await until(reader, online(Span(2, 6)))
                await eventually(lambda: caplog.text.count("ONLINE with") == 2)  # Said when all has been announced.
        assert len(said(told, "accept")) >= 1
    assert caplog.text.count("ONLINE with") == 2 and "ONLINE with blocks 0–3" in caplog.text


async def test_an_arrival_declines_what_its_disk_is_too_small_for_and_decides_by_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life.shutil, "disk_usage", lambda where: SimpleNamespace(free=10))
    monkeypatch.setattr(Offer, "bytes_to_fetch", lambda self, span: 11 if span == Span(2, 6) else 0)
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        told.answers["/api/v1/hint"] = move(2, 6)
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=4, coordinator=told.url)):
                await until(reader, online(Span(0, 4)))
        assert said(told, "decline")[0]["reason"].startswith("disk: ") and said(told, "accept") == []


async def test_a_move_that_fails_for_what_is_not_its_blocks_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, broken = Ways.measure, [Span(3, 5)]

    async def measure_or_fail(self: Ways, node: Any, span: Span) -> None:
        if span in broken:
            raise OSError("the line to p2pd is gone")
        await measure(self, node, span)

    monkeypatch.setattr(Ways, "measure", measure_or_fail)
    with coordinator() as told:
        told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "ok", "reason": "…"}
        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=2, coordinator=told.url)):
                await until(reader, online(Span(0, 2)))
                told.answers["/api/v1/hint"] = move(3, 5)
                await eventually(lambda: bool(said(told, "decline")))
                broken.clear()
                await until(reader, online(Span(3, 5)))
                assert len(said(told, "accept")) >= 2


async def test_stopping_does_not_wait_for_loading(folder: Path, loads: Loads) -> None:
    loads.gate.clear()
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        stop = asyncio.Event()
        task = asyncio.create_task(serve(await config(boot, folder, num_blocks=4), stop))
        await until(reader, lambda seen: bool(seen.servers))
        stop.set()
        await asyncio.wait_for(task, 60)
        (server,) = (await until(reader, lambda seen: bool(seen.servers))).servers
        assert server.state is PeerState.LEAVING


HOSTILE: dict[str, tuple[str, Any, bytes]] = {
    "an int subkey": (block_uid(PREFIX, 0), 7, MSGPackSerializer.dumps((2, 1.0, {}))),
    "bytes that are no msgpack": (block_uid(PREFIX, 1), "x", b"\xc1\xff\x00"),
    "a plain value": (block_uid(PREFIX, 2), None, MSGPackSerializer.dumps("gone")),
    "deep nesting": (block_uid(PREFIX, 3), "x", b"\x91" * 2_000),
    "a huge model with a bad name": (MODELS_KEY, "a.b c", MSGPackSerializer.dumps({"num_blocks": 20_000})),
}


async def test_hostile_records_end_no_announcing(folder: Path) -> None:
    async with nodes(2) as (boot, stranger), reader_of(boot) as reader:
        made = await config(boot, folder, num_blocks=4, update_period_s=0.2, fallback_after_s=0.1, confirm_s=0.1)
        async with serving(made):
            seen = await until(reader, online(Span(0, 4)))
            for key, subkey, value in HOSTILE.values():
                assert await plant(stranger, boot, key, subkey, value)
            later = seen.servers[0].expires_at + 2.0
            await until(reader, lambda now: bool(now.servers) and now.servers[0].expires_at > later)
            assert (await read_index(reader))[0] == {PREFIX: ModelRecord(6, None)}


async def test_ready_is_said_to_systemd_only_when_online(
    folder: Path, loads: Loads, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loads.gate.clear()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        messages: list[bytes] = []

        def read() -> list[bytes]:
            while True:
                try:
                    messages.append(listener.recv(999))
                except BlockingIOError:
                    return messages

        async with nodes(1) as (boot,), reader_of(boot) as reader:
            async with serving(await config(boot, folder, num_blocks=4)):
                await until(reader, lambda seen: bool(seen.servers))
                assert not any(message.startswith(b"READY") for message in read())
                loads.gate.set()
                await eventually(lambda: any(message.startswith(b"READY=1\nSTATUS=online") for message in read()))
        assert any(message.startswith(b"STOPPING=1") for message in read())
