from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blockserver.config import ServeConfig, parse_block_indices, parse_bytes
from swarm.errors import LocalError
from swarm.wire.spans import Span

GOOD: dict[str, Any] = {"model": Path("m"), "initial_peers": ("/ip4/127.0.0.1/tcp/1/p2p/x",)}


def test_the_defaults_are_fine() -> None:
    assert ServeConfig(**GOOD).update_period_s == 120.0


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ({"initial_peers": ()}, "--initial-peers"),
        ({"dtype": "float8"}, "--dtype float8: choose one of"),
        ({"quant_type": "int3"}, "--quant-type int3: choose one of"),
        ({"throughput": "fast"}, "--throughput fast: auto, eval"),
        ({"throughput": -1.0}, "--throughput -1"),
        ({"metrics_port": 70_000}, "--metrics-port 70000"),
        ({"min_dwell_s": -1.0}, "--min-dwell -1"),
        ({"num_blocks": 0}, "--num-blocks 0"),
        ({"cache_tokens": 0}, "--cache-tokens 0"),
        ({"update_period_s": 0.0}, "--update-period 0"),
        ({"hint_interval_s": float("nan")}, "--hint-interval nan"),
        ({"coordinator": "swarm.example"}, "--coordinator swarm.example"),
        ({"prefix": "a.b"}, "--prefix"),
        ({"public_name": "x" * 100}, "--public-name"),
    ],
)
def test_a_bad_setting_is_named_with_what_would_be_right(setting: dict[str, Any], names: str) -> None:
    with pytest.raises(LocalError, match=names):
        ServeConfig(**{**GOOD, **setting})


@pytest.mark.parametrize(("text", "size"), [("300GB", 300 * 10**9), ("1.5TiB", 3 * 2**39), ("1024", 1024), ("2 k", 2000)])
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_a_token_does_not_get_into_logs_by_a_printed_setting() -> None:
    assert "secret" not in repr(ServeConfig(**GOOD, token="secret"))


def test_block_indices_are_written_as_in_petals() -> None:
    assert parse_block_indices("0:18") == Span(0, 18)


@pytest.mark.parametrize("text", ["18", "5:5", "9:3", "a:b", "-1:4", "1:2:3", ""])
def test_block_indices_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(LocalError, match="two numbers such as 0:18"):
        parse_block_indices(text)
