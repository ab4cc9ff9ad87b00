"""The doctor on a real machine with real peers on loopback: what is seeded there is seen and judged."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hivemind.utils import get_dht_time
from transformers import PreTrainedModel
from typer.testing import CliRunner

from blockserver.cli import app
from blockserver.doctor import meet
from blockserver.doctor.facts import Facts
from blockserver.doctor.findings import Level
from blockserver.doctor.gather import gather, look_at_folder, look_at_gpus, look_at_identity
from blockserver.doctor.report import diagnose
from blockserver.doctor.wishes import Wishes
from blockserver.model.facts import read_facts
from blockserver.serving import loading
from swarm.dht.declare import declare_model, declare_server
from swarm.dht.node import LOOPBACK, Node, make_identity
from swarm.errors import LocalError
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.blockserver.coordinators import coordinator
from tests.blockserver.loopback import loopback_peer
from tests.loopback import nodes
from tests.swarms import peer_id

SECRET = "hub-token-that-nobody-may-see"
GIGABYTE = 10**9


@pytest.fixture
def wishes(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> Wishes:
    return Wishes(
        model=str(tiny[0]),
        initial_peers=(),
        coordinator=None,
        prefix=None,
        num_blocks=None,
        listen=LOOPBACK,
        announce=(),
        identity_path=None,
        dtype="float32",
        quant_type="none",
        token=None,
        hub="http://127.0.0.1:9",
        cache_dir=tmp_path,
        state_dir=tmp_path,
        cache_tokens=64,
        relay=False,
    )


async def errors(wishes: Wishes) -> dict[str, str]:
    """Names of the errors found, with their facts."""
    found = diagnose(await gather(wishes))
    return {finding.name: finding.fact for finding in found.findings if finding.level is Level.ERROR}


async def met(wishes: Wishes, boot: Node, **more: Any) -> dict[str, str]:
    return await errors(replace(wishes, initial_peers=await boot.addresses(), **more))


async def test_a_clean_host_gives_no_alarm_and_the_command_that_serves(wishes: Wishes) -> None:
    async with nodes(1) as (boot,):
        given = replace(wishes, initial_peers=await boot.addresses())
        found = diagnose(await gather(given))
        assert found.summary() == "nothing is wrong", found.findings
        facts = {finding.name: finding.fact for finding in found.findings}
        assert facts["bootstrap"] == "1 of 1 bootstrap peers answer"
        assert "new to the swarm" in facts["prefix"]
        assert found.next_command.startswith(f"sepal serve {wishes.model} --initial-peers /ip4/127.0.0.1/tcp/")


async def test_on_a_clean_host_the_command_exits_with_0_and_json_on_stdout(wishes: Wishes, tmp_path: Path) -> None:
    async with nodes(1) as (boot,):
        words = ["doctor", str(wishes.model), "--initial-peers", *await boot.addresses(), "--host-maddrs", *LOOPBACK, "--json"]
        words += ["--no-nat-port-map", "--no-relay", "--state-dir", str(tmp_path), "--cache-dir", str(tmp_path)]
        result = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["well"] is True


def test_an_error_exits_with_3_and_says_one_next_command(tmp_path: Path) -> None:
    key = tmp_path / "server.id"
    make_identity(key)
    key.chmod(0o644)
    words = ["doctor", "--identity-path", str(key), "--state-dir", str(tmp_path), "--cache-dir", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 3
    assert "✗ identity" in result.output
    assert f"1 error. Next: chmod 600 {key}" in result.output


async def test_a_bad_multiaddress(wishes: Wishes) -> None:
    found = await errors(replace(wishes, initial_peers=("/ip/10.0.0.1/tcp/1",)))
    assert "address 1" in found["addresses"]


async def test_nobody_at_the_bootstrap_address(wishes: Wishes) -> None:
    found = await errors(replace(wishes, initial_peers=(f"/ip4/127.0.0.1/tcp/9/p2p/{peer_id('nobody')}",)))
    assert list(found) == ["bootstrap"]


async def test_a_bootstrap_peer_that_is_no_dht(wishes: Wishes) -> None:
    stranger = await loopback_peer()
    try:
        addresses = tuple(map(str, await stranger.get_visible_maddrs()))
        found = await errors(replace(wishes, initial_peers=addresses))
    finally:
        await stranger.shutdown()
    assert "is no peer of such a swarm" in found["bootstrap"]


async def test_a_bootstrap_of_another_swarm_than_the_sites(wishes: Wishes) -> None:
    with coordinator() as site:
        site.answers["/api/v1/models"] = {"items": [{"prefix": "tiny"}]}
        async with nodes(1) as (boot,):
            found = await met(wishes, boot, coordinator=site.url)
    assert "another swarm" in found["bootstrap"]


async def test_a_clock_that_is_off(wishes: Wishes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meet, "get_dht_time", lambda: get_dht_time() + 60.0)
    async with nodes(1) as (boot,):
        assert "60 s ahead" in (await met(wishes, boot))["clock"]


async def test_a_wrong_prefix_and_an_old_version(wishes: Wishes) -> None:
    async with nodes(2) as (boot, other):
        await declare_model(other, "Tiny-hf", ModelRecord(6, None), 60.0)
        record = ServerRecord(ServerState.ONLINE, 1.0, Span(0, 6), version="sepal-99.0.0")
        await declare_server(other, "Tiny-hf", Span(0, 6), record, 60.0)
        assert "the swarm announces Tiny-hf" in (await met(wishes, boot, prefix="tiny"))["prefix"]
        assert "1 of 1 servers of this kind run a newer one" in (await met(wishes, boot, prefix="Tiny-hf"))["version"]


async def test_a_port_that_the_site_cannot_reach(wishes: Wishes) -> None:
    with coordinator() as site:
        async with nodes(1) as (boot,):
            site.answers["/api/v1/models"] = {"items": []}

            class Closed(dict[str, Any]):
                def get(self, path: str, default: object = None) -> Any:
                    asked = path.startswith("/api/v1/is_reachable/12D3")
                    return {"success": False, "message": "timeout", "your_ip": "::1"} if asked else super().get(path, default)

            site.answers = Closed(site.answers)
            assert "closed from outside: the site: timeout" in (await met(wishes, boot, coordinator=site.url))["port"]


async def test_without_a_site_peers_say_whether_the_port_is_open(wishes: Wishes) -> None:
    async with nodes(1) as (boot,):
        from blockserver.rpc.reachability import ReachabilityProtocol

        await ReachabilityProtocol(boot.p2p).start()
        facts = await gather(replace(wishes, initial_peers=await boot.addresses()))
    assert facts.port is not None
    assert (facts.port.reachable, facts.port.detail) == (True, "1 of 1 peers reached it")


async def test_a_token_that_the_hub_refuses_is_never_shown(wishes: Wishes) -> None:
    with coordinator() as hub:
        hub.answers["/api/whoami-v2"] = 401
        facts = await gather(replace(wishes, token=SECRET, hub=hub.url))
        assert hub.read == [("/api/whoami-v2", f"Bearer {SECRET}")]
    found = diagnose(facts)
    assert [finding.name for finding in found.findings if finding.level is Level.ERROR] == ["token"]
    assert SECRET not in repr(facts) + repr(found)


async def test_a_hub_that_is_down_is_no_error(wishes: Wishes) -> None:
    found = diagnose(await gather(replace(wishes, token=SECRET, hub="http://127.0.0.1:9")))
    assert found.is_well
    assert SECRET not in repr(found)


async def test_too_little_memory(wishes: Wishes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: namedtuple("Memory", "available")(1_000))
    assert "a block with its cache takes" in (await errors(wishes))["memory"]


async def test_a_full_disk(wishes: Wishes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "total used free")(GIGABYTE, GIGABYTE, 0))
    assert "0.0 MB free" in (await errors(wishes))["disk"]


async def test_few_open_files(wishes: Wishes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))
    assert "at most 256" in (await errors(wishes))["open files"]


@pytest.mark.parametrize(
    ("routes", "listen", "error"),
    [({"ip6"}, "/ip4/0.0.0.0/tcp/0", "IPv6 only"), ({"ip6"}, "/ip6/::/tcp/0", None), ({"ip4"}, "/ip4/0.0.0.0/tcp/0", None)],
)
async def test_ipv6_only(
    wishes: Wishes, monkeypatch: pytest.MonkeyPatch, routes: set[str], listen: str, error: str | None
) -> None:
    monkeypatch.setattr(meet, "_has_route", lambda family, address: ("ip6" if ":" in address else "ip4") in routes)
    found = await errors(replace(wishes, listen=(listen,)))
    assert (error or "") in found.get("internet", "")
    assert ("internet" in found) == (error is not None)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert look_at_folder("state", tmp_path / "file" / "sub", 0).problem == f"{tmp_path / 'file'} is no folder"
    assert look_at_folder("state", tmp_path / "new" / "sub", 0).problem is None
    assert not (tmp_path / "new").exists()


def test_an_nvidia_card_without_a_driver(tmp_path: Path) -> None:
    for name, vendor, kind in (("0000:00:02.0", "0x8086", "0x030000"), ("0000:01:00.0", "0x10de", "0x030200")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    assert look_at_gpus(tmp_path).hardware == ("NVIDIA card at PCI 0000:01:00.0",)


def test_identity_files(tmp_path: Path) -> None:
    made, broken = tmp_path / "made", tmp_path / "broken"
    make_identity(made)
    broken.write_bytes(b"not a key")
    seen = look_at_identity(made)
    assert seen.mode is not None
    assert (seen.mode & 0o077, seen.problem) == (0, None)
    assert "no private key" in (look_at_identity(broken).problem or "")
    assert look_at_identity(tmp_path / "absent").mode is None


async def test_a_model_that_is_none(wishes: Wishes, tmp_path: Path) -> None:
    facts: Facts = await gather(replace(wishes, model=str(tmp_path)))
    assert facts.model_problem is not None
    assert "config.json" in facts.model_problem


async def test_memory_is_reckoned_in_the_precision_that_is_to_be_served(
    wishes: Wishes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model whose blocks are large enough to be quantised, unlike those of a tiny one."""
    facts = replace(read_facts(Path(str(wishes.model))), parameters_per_block=2_000_000, quantisable_per_block=2_000_000)
    monkeypatch.setattr(loading, "read_model", lambda config: facts)
    plain, small = [(await gather(replace(wishes, quant_type=kind))) for kind in ("none", "nf4")]
    assert plain.memory.block_bytes is not None and small.memory.block_bytes is not None
    assert small.memory.block_bytes < plain.memory.block_bytes / 6
    assert "--quant-type nf4" in small.arguments and "--quant-type" not in plain.arguments
    with pytest.raises(LocalError, match="--quant-type nf5"):
        replace(wishes, quant_type="nf5")
