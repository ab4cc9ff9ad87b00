"""What an operator sees who mistypes something: one sentence and an exit code, never a traceback."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedModel
from typer.testing import CliRunner, Result

from blockserver import reporting
from blockserver.cli import app
from blockserver.client import chat
from blockserver.client.chat import Answer, ChatConfig, Say
from blockserver.client.notes import Notes
from tests.blockserver.coordinators import coordinator
from tests.swarms import peer_id

NOBODY = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_id('nobody')}"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No running demo's file lies here, nor anyone's settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def sepal(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def serve(folder: Path | str, *more: str, peers: str = NOBODY) -> Result:
    local = ["--host-maddrs", "/ip4/127.0.0.1/tcp/0", "--no-nat-port-map", "--no-relay"]
    return sepal("serve", str(folder), "--initial-peers", peers, *local, *more)


def test_bare_sepal_shows_examples_first_and_is_no_error() -> None:
    result = sepal()
    assert result.exit_code == 0
    assert result.output.index("sepal chat") < result.output.index("Commands")


def test_an_unknown_folder_is_named() -> None:
    result = serve("/nowhere/at/all")
    assert (result.exit_code, "there is no model folder /nowhere/at/all" in result.output) == (1, True)


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    result = serve(tmp_path)
    assert (result.exit_code, "holds no config.json" in result.output) == (1, True)


def test_a_missing_shard_is_named_before_anything_is_loaded(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    broken = tmp_path / "tiny"
    shutil.copytree(tiny[0], broken)
    shard = sorted(broken.glob("*.safetensors"))[1]
    shard.unlink()
    result = serve(broken, "--num-blocks", "2")
    assert result.exit_code == 1
    assert shard.name in result.output


def test_a_bad_multiaddress_is_a_usage_error_that_names_the_token(tiny: tuple[Path, PreTrainedModel]) -> None:
    result = serve(tiny[0], peers=f"/ip/10.0.0.1/tcp/1/p2p/{peer_id('x')}")
    assert result.exit_code == 2
    assert "address 1" in result.output
    assert "Unknown Protocol at /ip" in result.output


def test_a_bootstrap_peer_that_does_not_answer_is_named(tiny: tuple[Path, PreTrainedModel]) -> None:
    result = serve(tiny[0], "--num-blocks", "2")
    assert result.exit_code == 1
    assert f"no bootstrap peer answers ({NOBODY})" in result.output


def test_a_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        result = sepal("bootstrap", "--host-maddrs", address, "--no-nat-port-map", "--no-relay")
    assert result.exit_code == 1
    assert f"cannot listen on {address}: Address already in use. Choose another port" in result.output


def test_blocks_beyond_the_model_are_refused(tiny: tuple[Path, PreTrainedModel]) -> None:
    result = serve(tiny[0], "--block-indices", "0:99")
    assert result.exit_code == 1
    assert "has blocks 0 to 5" in result.output


def test_chat_without_a_demo_says_what_is_needed() -> None:
    result = sepal("chat", "hello")
    assert result.exit_code == 2
    assert "--model and --initial-peers are needed" in result.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--audit", "2"], "share of steps to audit is 0 to 1"),
        (["--allow", "me"], "'me' is no peer id"),
        (["--temperature", "-1"], "temperature"),
        (["--coordinator", "swarm.example"], "--coordinator swarm.example: an address such as https://swarm.example"),
    ],
)
def test_chat_says_which_flag_is_wrong(flags: list[str], said: str, tiny: tuple[Path, PreTrainedModel]) -> None:
    result = sepal("chat", "hello", "--model", str(tiny[0]), "--initial-peers", NOBODY, *flags)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize("asked_to", [True, False])
def test_chat_tells_a_site_what_it_saw_of_servers_only_where_it_is_asked_to(
    asked_to: bool, tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def conversation(config: ChatConfig, notes: Notes | None = None) -> AsyncIterator[Any]:
        async def ask(question: str, show: Say) -> Answer:
            if notes is not None:
                notes.worked(peer_id("a"))
            show("well")
            return Answer("well", (1,), (), 0.1, 1.0, 0)

        yield SimpleNamespace(ask=ask, model=SimpleNamespace(prefix="tiny-hf"))

    monkeypatch.setattr(chat, "conversation", conversation)
    monkeypatch.setattr(reporting, "LAST_WORD_S", 30.0)  # a busy machine
    with coordinator() as site:
        site.answers["/api/v1/report"] = {"counted": 1}
        flags = ["--coordinator", site.url] if asked_to else []
        result = sepal("chat", "how are you", "--model", str(tiny[0]), "--initial-peers", NOBODY, *flags)
        asked = site.asked
    assert result.exit_code == 0 and "well" in result.output
    assert (f"{site.url} is told which servers failed" in result.output) is asked_to
    assert [(path, body["model"], body["servers"][0]["requests"]) for path, body in asked] == [
        ("/api/v1/report", "tiny-hf", 1),
    ] * asked_to
    assert "how are you" not in str(asked) and "well" not in str(asked)


def test_chat_beside_a_demo_that_is_gone_says_so(tiny: tuple[Path, PreTrainedModel]) -> None:
    folder = Path(".run")
    folder.mkdir()
    facts = {"site": "http://127.0.0.1:9", "bootstrap": NOBODY, "model": str(tiny[0])}
    (folder / "demo.json").write_text(json.dumps(facts))
    result = sepal("status")
    assert (result.exit_code, "does not answer as a Sepal site" in result.output) == (1, True)


def model_document(**more: Any) -> dict[str, Any]:
    def server(name: str, start: int, end: int) -> dict[str, Any]:
        return {
            "peer_id": peer_id(name), "start": start, "end": end, "state": "online", "throughput_tokens_per_second": 10.0,
        }  # fmt: skip

    return {
        "prefix": "tiny-hf",
        "num_blocks": 30,
        "verdict": "broken",
        "sentence": "cannot run: blocks 24–29 have no server",
        "observed_at": "2026-01-01T00:00:00+00:00",
        "holes": [[24, 30]],
        "thin": [[0, 12]],
        "unread": [],
        "blocks": [1] * 12 + [2] * 12 + [0] * 6,
        "servers": [server("a", 0, 24), server("b", 12, 24)],
        **more,
    }


@pytest.mark.parametrize("answer", [500, b"<html>", {"items": 3}, {"items": [{"prefix": "x"}]}, []])
@pytest.mark.parametrize("command", ["hints", "status"])
def test_a_site_that_is_none_is_one_sentence(command: str, answer: Any) -> None:
    with coordinator() as site:
        site.answers["/api/v1/models"] = site.answers["/api/v1/needed"] = answer
        said = sepal(command, "--site", site.url)
    if command == "status" and answer == {"items": [{"prefix": "x"}]}:
        assert said.exit_code == 0
    else:
        assert said.exit_code == 1
        assert said.stderr.startswith("sepal: ")
        assert said.stdout == ""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--num-blocks", "-3"), "--num-blocks -3: say a number from 1 to 2048, or --memory-gb instead"),
        (("--num-blocks", "0"), "from 1 to 2048"),
        (("--num-blocks", "2049"), "from 1 to 2048"),
        (("--memory-gb", "0"), "say the memory of your card, more than 0 and at most 10000 GB"),
        (("--memory-gb", "nan"), "say the memory of your card"),
        (("--memory-gb", "24", "--parameters-b", "-1"), "--parameters-b -1: say billions of parameters, more than 0"),
        (("--memory-gb", "24", "--parameters-b", "inf"), "say billions of parameters"),
        (("--leaves", "me"), "--leaves me: say a peer id as the site shows it"),
        (("--prefix", "a b"), "--prefix a b: say a model's name as `sepal status` shows it"),
        (("--site", "example.org"), "an address such as https://swarm.example is expected"),
    ],
)
def test_what_hints_cannot_be_asked_is_said_before_the_site_is_asked(given: tuple[str, ...], says: str) -> None:
    with coordinator() as site:
        said = sepal("hints", "--site", site.url, *given)
        assert (said.exit_code, site.read) == (2, [])
    assert said.stderr.startswith("sepal: ") and says in said.stderr and said.stdout == ""


@pytest.mark.parametrize(("verdict", "code"), [("complete", 0), ("thin", 0), ("broken", 4), ("unknown", 4)])
def test_status_check_tells_a_script_whether_the_swarm_can_be_used(verdict: str, code: int) -> None:
    with coordinator() as site:
        site.answers["/api/v1/models"] = {"items": [model_document(verdict=verdict)]}
        assert sepal("status", "--site", site.url, "--check").exit_code == code
        assert sepal("status", "--site", site.url).exit_code == 0
        assert json.loads(sepal("status", "--site", site.url, "--json").stdout)["items"][0]["verdict"] == verdict


def test_bench_measures_and_says_what_would_be_announced(tiny: tuple[Path, PreTrainedModel]) -> None:
    result = sepal("bench", str(tiny[0]), "--dtype", "float32", "--num-blocks", "3", "--json")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert (said["num_blocks"], said["blocks_measured"], said["dtype"]) == (3, 3, "float32")
    assert said["throughput"] == pytest.approx(2 * said["forward_rps"] / 4)
    assert said["devices"][-1]["name"] == "cpu"
    assert "announced" in sepal("bench", str(tiny[0]), "--num-blocks", "3").output


def test_bench_without_a_model_is_wrong_usage() -> None:
    assert sepal("bench").exit_code == 2
    assert sepal("serve", "--initial-peers", NOBODY).exit_code == 2
