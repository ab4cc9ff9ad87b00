from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blockserver.config import ServeConfig, parse_block_indices
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


def test_block_indices_are_written_as_in_petals() -> None:
    assert parse_block_indices("0:18") == Span(0, 18)


@pytest.mark.parametrize("text", ["18", "5:5", "9:3", "a:b", "-1:4", "1:2:3", ""])
def test_block_indices_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(LocalError, match="two numbers such as 0:18"):
        parse_block_indices(text)
