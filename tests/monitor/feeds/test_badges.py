"""Badges: small, readable by everyone, and "unknown" where the monitor does not know."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries
from monitor.feeds.badges import Badge, svg
from monitor.store import store
from swarm.snapshot import Model
from tests.monitor.seeding import NOW, failure, online, report, seed
from tests.swarms import model

pytestmark = pytest.mark.django_db

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [NOW + 12]
    monkeypatch.setattr(queries.time, "time", lambda: moment[0])
    return moment


def two(*more: str) -> Model:
    return model(2, *(online(name, 0, 2) for name in ("a", *more)))


def words(client: Client, path: str = "/badge/tiny-hf") -> str:
    """The same in both forms."""
    shown = client.get(f"{path}.json").json()
    title = ET.fromstring(client.get(f"{path}.svg").content).find(f"{SVG}title")
    assert title is not None and title.text == f"{shown['label']}: {shown['message']}"
    return str(shown["message"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (two("b"), "runs"),
        (two(), "runs, some blocks thin"),
        (model(2, online("a", 0, 1)), "cannot run: block 1"),
        (model(2, online("a", 0, 1), unread=frozenset({1})), "unknown"),
    ],
    ids=["complete", "thin", "broken", "unread"],
)
def test_a_badge_says_the_verdict_of_the_page(client: Client, made: Model, said: str) -> None:
    seed(made)
    assert words(client) == said


def test_a_badge_says_unknown_when_its_figures_are_stale(client: Client, at: list[float]) -> None:
    seed(two("b"))
    at[0] = NOW + 91
    assert words(client) == "unknown"


def test_a_badge_says_unknown_when_the_monitor_is_blind_held_back_or_has_just_started(client: Client) -> None:
    assert words(client) == "unknown"
    store(failure(NOW))
    assert words(client) == "unknown"
    seed(two("b"))
    store(replace(report(NOW + 10, two()), held="hard to believe", suspicion="mass-loss"))
    assert words(client) == "unknown"


def test_a_model_that_is_not_there_is_an_error_only_where_the_monitor_sees(client: Client, at: list[float]) -> None:
    seed(two("b"))
    assert client.get("/badge/other.json").json()["isError"] is True and client.get("/badge/other.svg").status_code == 404
    at[0] = NOW + 91
    assert client.get("/badge/other.json").json()["message"] == "unknown"


def test_shields_gets_its_schema_and_caches_are_allowed(client: Client) -> None:
    seed(two("b"))
    answer = client.get("/badge/tiny-hf.json", headers={"Origin": "https://shields.example"})
    assert answer.json() == {
        "schemaVersion": 1, "label": "tiny-hf", "message": "runs", "color": "0b5c94", "isError": False, "cacheSeconds": 60,
    }  # fmt: skip
    for path in ("/badge/tiny-hf.json", "/badge/tiny-hf.svg"):
        answer = client.get(path, headers={"Origin": "https://shields.example"})
        assert answer["Cache-Control"] == "public, max-age=60" and answer["Access-Control-Allow-Origin"] == "*"
        assert client.get(path, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    assert client.get("/badge/tiny-hf.svg")["Content-Type"].startswith("image/svg+xml")


@pytest.mark.parametrize("label", ["&" * 32, "<script>" * 4, "模" * 32, "🦆" * 32, "'\"" * 16])
def test_the_worst_label_is_escaped_and_stays_below_two_kilobytes(label: str) -> None:
    drawn = svg(Badge(label, "cannot run: blocks 1–2, 5, 9–12…", "8f1d14"))
    assert len(drawn.encode()) <= 2_048
    root = ET.fromstring(drawn)
    assert [text.text for text in root.iter(f"{SVG}text")] == [label, "cannot run: blocks 1–2, 5, 9–12…"]


def test_names_of_models_are_cut(client: Client) -> None:
    seed(replace(two("b"), repository="https://hub.example/" + "x" * 200))
    assert len(client.get("/badge/tiny-hf.json").json()["label"]) == 32


@pytest.mark.parametrize("colour", ["0b5c94", "8a5a00", "8f1d14", "5a6470"])
def test_white_text_can_be_read_on_every_colour(colour: str) -> None:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    assert 1.05 / (luminance + 0.05) >= 4.5
