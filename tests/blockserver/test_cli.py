"""What an operator sees who mistypes something: one sentence and an exit code, never a traceback."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from transformers import PreTrainedModel
from typer.testing import CliRunner, Result

from blockserver.cli import app
from tests.swarms import peer_id

NOBODY = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_id('nobody')}"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No running demo's file lies here."""
    monkeypatch.chdir(tmp_path)


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


def test_chat_beside_a_demo_that_is_gone_says_so(tiny: tuple[Path, PreTrainedModel]) -> None:
    folder = Path(".run")
    folder.mkdir()
    facts = {"site": "http://127.0.0.1:9", "bootstrap": NOBODY, "model": str(tiny[0])}
    (folder / "demo.json").write_text(json.dumps(facts))
    result = sepal("status")
    assert (result.exit_code, "does not answer as a Sepal site" in result.output) == (1, True)
