"""Where a setting comes from: flag before environment before file before default; what nobody knows is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from blockserver.cli import app
from blockserver.commands.words import with_config_first, with_dashes, with_several

FILE = """
coordinator = "https://swarm.example"
public-name = "from the file"
num_blocks = 3

[serve]
num-blocks = 5
initial-peers = ["/ip4/127.0.0.1/tcp/1/p2p/a", "/ip4/127.0.0.1/tcp/2/p2p/b"]
token = "hub-secret"
relay = false

[doctor]
port = 31330
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SEPAL_NUM_BLOCKS", "SEPAL_PUBLIC_NAME", "SEPAL_CONFIG", "SEPAL_INITIAL_PEERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sepal.toml"
    path.write_text(FILE)
    return path


def sepal(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def shown(*words: str) -> dict[str, dict[str, Any]]:
    result = sepal("config", "show", *words, "--origin", "--json")
    assert result.exit_code == 0, result.output
    settings: dict[str, dict[str, Any]] = json.loads(result.stdout)
    return settings


def test_the_order_is_flag_environment_file_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEPAL_PUBLIC_NAME", "from the environment")
    settings = shown("serve", "--num_blocks", "7", "--config", str(file))
    assert settings["num-blocks"] == {"value": 7, "origin": "flag", "from": "--num-blocks"}
    assert settings["public-name"] == {"value": "from the environment", "origin": "environment", "from": "SEPAL_PUBLIC_NAME"}
    assert settings["coordinator"] == {"value": "https://swarm.example", "origin": "file", "from": str(file)}
    assert settings["hint-interval"] == {"value": 30.0, "origin": "default", "from": ""}
    assert settings["relay"]["value"] is False
    assert settings["initial-peers"]["value"] == ["/ip4/127.0.0.1/tcp/1/p2p/a", "/ip4/127.0.0.1/tcp/2/p2p/b"]


def test_a_commands_own_table_goes_before_the_top(file: Path) -> None:
    assert shown("serve", "--config", str(file))["num-blocks"]["value"] == 5
    doctor = shown("doctor", "--config", str(file))
    assert (doctor["num-blocks"]["value"], doctor["port"]["value"]) == (3, 31330)


def test_the_platforms_own_place_is_read_without_being_named(tmp_path: Path) -> None:
    place = tmp_path / "config" / "sepal" / "sepal.toml"
    place.parent.mkdir(parents=True)
    place.write_text("num-blocks = 9\n")
    assert shown("serve")["num-blocks"] == {"value": 9, "origin": "file", "from": str(place)}


def test_addresses_in_the_environment_are_separated_by_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEPAL_INITIAL_PEERS", "/ip4/1.2.3.4/tcp/1/p2p/a /ip4/1.2.3.4/tcp/2/p2p/b")
    assert len(shown("serve")["initial-peers"]["value"]) == 2


def test_a_token_is_never_shown(file: Path) -> None:
    result = sepal("config", "show", "--origin", "--config", str(file))
    assert result.exit_code == 0
    assert "hub-secret" not in result.output
    assert "(hidden)" in result.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num-block = 3", "no setting is called num-block; did you mean num-blocks?"),
        ("[serve]\nmetrics = 1", "[serve]: no setting is called metrics; did you mean metrics-port?"),
        ("[server]\nnum-blocks = 1", "[server] is no command; did you mean serve?"),
        ("num-blocks = = 3", "Invalid value"),
        ("xyzzy = 1", "no setting is called xyzzy"),
    ],
)
def test_what_nobody_knows_is_an_error_with_the_nearest_name(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "sepal.toml"
    path.write_text(text)
    result = sepal("config", "show", "--config", str(path))
    assert (result.exit_code, says in result.output) == (2, True), result.output


def test_a_settings_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    result = sepal("--config", str(tmp_path / "absent.toml"), "config", "show")
    assert (result.exit_code, "No such file" in result.output) == (2, True)


def test_a_value_of_the_wrong_kind_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "sepal.toml"
    path.write_text('num-blocks = "many"')
    result = sepal("serve", "m", "--config", str(path))
    assert (result.exit_code, "--num-blocks" in result.output) == (2, True), result.output


def test_help_about_a_word_shows_only_options_about_it() -> None:
    result = sepal("serve", "--help=relay")
    assert result.exit_code == 0
    assert "--relay" in result.output
    assert "--num-blocks" not in result.output
    everywhere = sepal("--help=identity")
    assert everywhere.exit_code == 0
    assert everywhere.output.count("--identity-path") == 3
    assert "none" in sepal("serve", "--help=xyzzy").output


def test_petals_ways_of_writing_flags() -> None:
    assert with_dashes(["serve", "--num_blocks", "a_b", "--x_y=c_d", "--", "--e_f"]) == [
        *("serve", "--num-blocks", "a_b", "--x-y=c_d", "--", "--e_f"),
    ]
    assert with_several(["m", "--initial-peers", "/ip4/1/x", "/dns4/h/x", "--port", "1", "/ip4/1/y"]) == [
        *("m", "--initial-peers", "/ip4/1/x", "--initial-peers", "/dns4/h/x", "--port", "1", "/ip4/1/y"),
    ]
    assert with_config_first(["serve", "m", "--config", "f", "--port", "1"]) == ["--config", "f", "serve", "m", "--port", "1"]
    assert with_config_first(["chat", "--", "--config", "f"]) == ["chat", "--", "--config", "f"]


def test_both_ways_to_say_where_to_listen_are_one_too_many() -> None:
    result = sepal("bootstrap", "--port", "31330", "--host-maddrs", "/ip4/127.0.0.1/tcp/0")
    assert (result.exit_code, "give one of them" in result.output) == (2, True)


@pytest.mark.parametrize(
    "words", [["--quant-type", "int3"], ["--throughput", "fast"], ["--max-disk-space", "lots"], ["--min-dwell", "-1"]]
)
def test_a_bad_value_names_its_flag(words: list[str]) -> None:
    result = sepal(
        "serve", "m", "--initial-peers", "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWGBfKqTqgjMuCgDe6bqXQbxhhWN5AmKAwX6oFPkSVmaCe", *words
    )
    assert (result.exit_code, words[0] in result.output) == (2, True), result.output
