"""Who asks, what is missing since when, and settings that cannot be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blockserver.cli import app
from blockserver.gateway.callers import caller_of
from blockserver.gateway.config import GatewayConfig
from blockserver.gateway.manner import Manner
from blockserver.gateway.refusals import Refusal
from blockserver.gateway.sight import Sight
from swarm.errors import LocalError
from tests.swarms import peer_id

PROXIES = ("127.0.0.0/8", "10.0.0.1")
AT_14_02 = 1_800_021_720.0
NOBODY = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_id('nobody')}"


@pytest.mark.parametrize(
    ("forwarded", "address", "same_as"),
    [
        ("198.51.100.7", "203.0.113.5", ("", "203.0.113.5")),
        ("198.51.100.7", "127.0.0.1", ("198.51.100.7", "127.0.0.1")),
        ("6.6.6.6, 198.51.100.7, 10.0.0.1", "127.0.0.1", ("198.51.100.7", "127.0.0.1")),
        ("2001:db8::/64", "127.0.0.1", ("9.9.9.9, 2001:db8::/64", "127.0.0.1")),
    ],
)
def test_a_caller_is_known_by_the_last_address_that_can_be_believed(
    forwarded: str, address: str, same_as: tuple[str, str]
) -> None:
    def caller(given: str, connected: str) -> str:
        return caller_of({"x-forwarded-for": given} if given else {}, connected, (), PROXIES)

    assert caller(forwarded, address) == caller(*same_as) != caller("", "127.0.0.2")


def test_a_key_is_a_caller_wherever_it_comes_from_and_behind_a_proxy_each_visitor_is() -> None:
    def caller(address: str, forwarded: str = "", key: str = "b") -> str:
        headers = {"authorization": f"Bearer {key}", **({"x-forwarded-for": forwarded} if forwarded else {})}
        return caller_of(headers, address, ("a", "b"), PROXIES)

    assert caller("192.0.2.1") == caller("192.0.2.2") != caller("192.0.2.1", key="a")
    assert caller("127.0.0.1", "192.0.2.1") != caller("127.0.0.1", "192.0.2.2")
    for wrong in ("", "c", "ab"):
        with pytest.raises(Refusal) as refused:
            caller("192.0.2.1", key=wrong)
        assert refused.value.status == 401
    with pytest.raises(Refusal):
        caller_of({"authorization": "Basic b"}, "192.0.2.1", ("b",), ())


def test_a_missing_block_is_missing_since_it_was_first_seen_so() -> None:
    sight = Sight("https://swarm.example/m/big")
    sight.looked([], AT_14_02 - 60)
    assert sight.sentence() == ""
    sight.met([88], AT_14_02)
    sight.looked([88], AT_14_02 + 300)
    assert sight.sentence() == "block 88 has no server since 14:02 UTC; see https://swarm.example/m/big"
    sight.looked([], AT_14_02 + 600)
    sight.looked([88, 89], AT_14_02 + 900)
    assert sight.sentence() == "blocks 88–89 have no server since 14:17 UTC; see https://swarm.example/m/big"
    assert sight.sentence([7]) == "block 7 has no server; see https://swarm.example/m/big"


def test_what_was_missing_at_the_first_look_may_be_missing_for_longer() -> None:
    sight = Sight()
    sight.looked([3], AT_14_02)
    sight.looked([3, 4], AT_14_02 + 60)
    assert sight.sentence([3]) == "block 3 has no server since 14:02 UTC or earlier"
    assert sight.sentence([4]) == "block 4 has no server since 14:03 UTC"
    sight.looked([4], AT_14_02 + 120)
    sight.looked([3], AT_14_02 + 180)
    assert sight.sentence([3]) == "block 3 has no server since 14:05 UTC"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"initial_peers": ()}, "--initial-peers"),
        ({"port": 70_000}, "--port 70000"),
        ({"dtype": "float8"}, "--dtype float8: choose one of"),
        ({"max_concurrent": 0}, "--max-concurrent 0: at least 1"),
        ({"max_waiting": -1}, "--max-waiting -1: at least 0"),
        ({"api_keys": ("with blank ",)}, "--api-keys"),
        ({"trusted_proxies": ("example.org",)}, "--trusted-proxies example.org"),
        ({"site": "swarm.example"}, "--site swarm.example"),
        ({"manner": Manner(temperature=3.0)}, "--temperature 3.0: 0 to 2"),
        ({"manner": Manner(top_p=0.0)}, "--top-p 0: above 0"),
        ({"manner": Manner(top_k=-1)}, "--top-k -1"),
    ],
)
def test_settings_that_cannot_be_right_name_their_flag(given: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        GatewayConfig(**{"model": Path("m"), "initial_peers": (NOBODY,), **given})


def test_a_gateway_without_a_demo_says_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["gateway"])
    assert (result.exit_code, "--model and --initial-peers are needed" in result.output) == (2, True)


def test_keys_come_from_the_environment_and_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SEPAL_API_KEYS", "one,two")
    shown = CliRunner().invoke(app, ["config", "show", "gateway", "--origin"]).output
    assert "(hidden)" in shown and "SEPAL_API_KEYS" in shown and "one" not in shown.replace("none", "")
