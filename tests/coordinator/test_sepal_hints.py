"""`sepal hints` against the site itself: it says what the site says, and nothing while the site sees nothing."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.test import Client
from rich.console import Console
from typer.testing import CliRunner, Result

from blockserver import hints_report
from blockserver.cli import app
from swarm.wire.spans import Span
from tests.coordinator.seeding import seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.coordinator.test_one_figure import BOASTED, the_hint
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

Sepal = Callable[..., Result]


@pytest.fixture
def sepal_hints(client: Client, monkeypatch: pytest.MonkeyPatch) -> Sepal:
    def get(url: str, params: dict[str, str], timeout: float) -> httpx.Response:
        answer = client.get(httpx.URL(url).path, params)
        request = httpx.Request("GET", url)
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content, request=request)

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr(logging.getLogger("django.request"), "disabled", True)  # the site's log is not the command's
    return lambda *words: CliRunner().invoke(app, ["hints", "--site", "http://site.example", *words])


def test_it_says_where_a_server_helps_what_it_changes_and_what_became_of_hints(sepal_hints: Sepal) -> None:
    holed()
    told = sepal_hints("--num-blocks", "12")
    assert (told.exit_code, told.stderr) == (0, "")
    first, second = [line for line in told.stdout.splitlines() if line.startswith(("  1. ", "     → "))][:2]
    assert first.endswith("blocks 12–17 have no server") and "the model runs again" in second
    assert "\x1b" not in told.stdout, "no colour where it is piped"
    assert ask("d", Span(0, 12)).lease is not None
    after = sepal_hints("--num-blocks", "12").stdout
    assert "Newest hints:" in after and f"to …{peer_id('d')[-6:]}: open  (blocks 12–17 have no server)" in after


def test_it_sends_nobody_to_blocks_that_are_promised(sepal_hints: Sepal) -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    (item,) = json.loads(sepal_hints("--num-blocks", "12", "--json").stdout)["items"]
    assert item["cards"][0]["reason_code"] != "hole" and "promised to servers that load them" in item["summary"]


def test_it_advises_nothing_while_the_monitor_is_blind(sepal_hints: Sepal) -> None:
    for _ in ("never seen", "seen too long ago"):
        told = sepal_hints("--num-blocks", "12")
        assert (told.exit_code, told.stdout) == (1, "")
        assert told.stderr.startswith("sepal: the monitor ") and told.stderr.count("\n") == 1
        seen(HOLED, ago_s=3600)
    assert "advises nothing until it does" in told.stderr
    assert sepal_hints("--json").stdout == ""


def test_it_believes_as_much_as_hints_do(sepal_hints: Sepal) -> None:
    seen(BOASTED)
    span, reason = the_hint()
    (item,) = json.loads(sepal_hints("--num-blocks", "4", "--json").stdout)["items"]
    assert (item["cards"][0]["start"], item["cards"][0]["reason"]) == (span.start, reason)


def test_what_fits_a_card_is_what_the_advice_is_for(sepal_hints: Sepal) -> None:
    seen(model(32, server("a", 0, 32), server("b", 0, 16)))
    assert "say how many parameters it has" in sepal_hints("--memory-gb", "8").stdout
    assert "Fits about 6 blocks" in sepal_hints("--memory-gb", "8", "--parameters-b", "32", "--quant-type", "int8").stdout
    smol = model(30, server("a", 0, 30), server("b", 0, 15))
    seen(type(smol)("SmolLM2-135M-Instruct-hf", 30, None, smol.servers), ago_s=-1)
    told = sepal_hints("--memory-gb", "0.05", "--prefix", "SmolLM2-135M-Instruct-hf", "--quant-type", "nf4", "--json")
    (item,) = json.loads(told.stdout)["items"]
    assert item["fits"]["num_blocks"] == item["num_blocks"] > 1
    half = sepal_hints("--memory-gb", "0.05", "--prefix", "SmolLM2-135M-Instruct-hf", "--dtype", "float32", "--json")
    assert json.loads(half.stdout)["items"][0]["num_blocks"] < item["num_blocks"]
    none = sepal_hints("--memory-gb", "0.001", "--prefix", "SmolLM2-135M-Instruct-hf")
    assert "Not even one block fits" in none.stdout and "  1. " not in none.stdout


def test_what_happens_if_one_leaves(sepal_hints: Sepal) -> None:
    seen(model(12, server("a", 0, 6), server("b", 6, 12)))
    assert "the model stops: blocks 6–11 would have no server" in sepal_hints("--leaves", peer_id("b")).stdout
    assert json.loads(sepal_hints("--leaves", peer_id("c"), "--json").stdout)["items"][0]["without"] is None
    refused = sepal_hints("--leaves", "me")
    assert (refused.exit_code, refused.stdout) == (2, "") and "--leaves me: say a peer id" in refused.stderr


def test_a_model_that_nobody_announces_is_named(sepal_hints: Sepal) -> None:
    seen(HOLED)
    told = sepal_hints("--prefix", "other")
    assert (told.exit_code, told.stdout) == (1, "") and "announces no model with the prefix 'other'" in told.stderr


@pytest.mark.parametrize("width", [80, 40])
def test_on_a_terminal_nothing_is_wider_than_it_and_nothing_is_lost(
    sepal_hints: Sepal, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    holed()
    ask("d", Span(0, 12))
    piped = sepal_hints().stdout

    def terminal(**more: Any) -> Console:
        return Console(**more, width=width, force_terminal=True, no_color=True)

    monkeypatch.setattr(hints_report, "Console", terminal)
    shown = sepal_hints().stdout
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= width
    # The age of the check may differ by a second.
    assert re.sub(r"\d+ s ago", "", " ".join(plain.split())) == re.sub(r"\d+ s ago", "", " ".join(piped.split()))
