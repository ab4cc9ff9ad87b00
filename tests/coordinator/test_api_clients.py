"""`sepal status` and `sepal hints` read the site's own API: what they print is what the OpenAPI document promises."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import jsonschema
import pytest
from django.test import Client

from blockserver import site as reading
from blockserver.hints_report import Wanted, show_hints
from blockserver.status import show_status
from coordinator import hints
from coordinator.management.commands.openapi import PATH
from swarm.snapshot import PeerState
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db
SITE = "https://swarm.example"


@pytest.fixture(autouse=True)
def _the_site_answers(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    def get(url: str, params: dict[str, str], **_: Any) -> httpx.Response:
        answer = client.get(url.removeprefix(SITE), params)
        return httpx.Response(answer.status_code, content=answer.content, request=httpx.Request("GET", url))

    monkeypatch.setattr(reading.httpx, "get", get)
    joining = server("j", 4, 8, PeerState.JOINING)
    seen(model(8, server("a", 0, 6), server("b", 0, 4), joining, server("u", 2, 8, PeerState.UNREACHABLE)))


def test_what_status_prints_is_what_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_status(SITE, as_json=True, check=True) == 4
    printed = json.loads(capsys.readouterr().out)
    document = json.loads(PATH.read_text())
    schema = {"$ref": "#/components/schemas/ModelList", "components": document["components"]}
    jsonschema.validate(printed, schema, jsonschema.Draft202012Validator)
    assert printed["items"][0]["holes"] == [[6, 8]] and printed["stale"] is False


def test_status_says_it_in_the_sites_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_status(SITE, as_json=False, check=False) == 0
    said = capsys.readouterr().out
    assert "✕ tiny-hf cannot run: blocks 6–7 have no server" in said
    assert "2 online · 1 unreachable · 1 joining" in said


def test_hints_are_the_sites_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_hints(SITE, Wanted(num_blocks=2), as_json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    (item,) = printed["items"]
    components = json.loads(PATH.read_text())["components"]
    for card in item["cards"]:
        schema = {"$ref": "#/components/schemas/CardDocument", "components": components}
        jsonschema.validate(card, schema, jsonschema.Draft202012Validator)
    assert "blocks 6–7 have no server" in item["summary"] and (item["cards"][0]["start"], item["cards"][0]["end"]) == (6, 8)


def test_hints_tell_who_changes_from_which_model_to_which(capsys: pytest.CaptureFixture[str]) -> None:
    rich = replace(model(8, *(server(name, 0, 8) for name in ("r0", "r1", "r2"))), prefix="rich")
    seen(rich, replace(model(8, server("p", 0, 4)), prefix="poor"))
    hints.answer(SWARM, question("r0", 8, Span(0, 8), "rich", {"poor": 8}), datetime.now(UTC))
    for prefix in ("rich", "poor"):
        assert show_hints(SITE, Wanted(prefix), as_json=False) == 0
        said = capsys.readouterr().out
        assert f"poor 0–7 to …{peer_id('r0')[-6:]} from rich: open" in said
        assert "poor: blocks 4–7 have no server" in said


def test_hints_call_nothing_missing_that_could_not_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    seen(model(8, server("a", 0, 4), server("b", 0, 4), unread=frozenset({4, 5, 6, 7})))
    assert show_hints(SITE, Wanted(num_blocks=4), as_json=False) == 0
    said = capsys.readouterr().out
    assert "blocks 4–7 could not be read" in said and "no server" not in said and "two servers or more" not in said
