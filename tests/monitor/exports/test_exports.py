"""The daily open export: made once, the same bytes for the same history, and honest about what was not watched."""

from __future__ import annotations

import gzip
import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from monitor.exports import making
from monitor.exports.lines import lines_of, spans
from monitor.exports.models import Export
from monitor.hiding.models import Hidden
from monitor.history import rollups
from monitor.history.minutes import Minutes, moment
from monitor.models import WatchedModel
from tests.monitor.seeding import NOW, seed
from tests.monitor.test_incidents import one_hole, whole
from tests.swarms import peer_id

DAY = date(2026, 9, 21)
NEXT = datetime(2026, 9, 22, 0, 30, tzinfo=UTC)

pytestmark = pytest.mark.django_db


@pytest.fixture
def a_day() -> None:
    """With a gap, and the first crawl of the next day, so that it is over."""
    one_hole()
    seed(whole(NEXT.timestamp()), at=NEXT.timestamp())
    rollups.roll_up(moment(NOW + 90))
    rollups.roll_up(NEXT)


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(body).splitlines()]


def by_type(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in found if line["type"] == kind]


@given(st.sets(st.integers(0, 1439)))
def test_runs_of_minutes_hold_exactly_those_minutes(minutes: set[int]) -> None:
    found = spans(Minutes.of(minutes))
    assert {minute for start, end in found for minute in range(start, end)} == minutes
    assert all(end < start for (_, end), (start, _) in pairwise(found)), "no two runs touch"


def test_a_day_tells_what_was_watched_and_what_was_wrong(a_day: None, client: Client) -> None:
    assert making.make(NEXT) == [DAY]
    found = lines(client.get("/exports/2026-09-21.ndjson.gz").content)
    assert found[0] == {"type": "export", "form": 1, "day": "2026-09-21"}
    (swarm,) = by_type(found, "swarm_day")
    (model,) = by_type(found, "model_day")
    first = int(NOW % 86_400 // 60)
    assert swarm["watched"] == model["watched"] == model["broken"] == [[first, first + 2]], "nothing is said of other minutes"
    assert (model["num_blocks"], model["size_known"]) == (4, True)
    (block,) = by_type(found, "block_day")
    assert (block["block"], block["missing"]) == (3, [[first, first + 2]])
    servers = {line["peer_id"]: line for line in by_type(found, "server_day")}
    assert set(servers) == {peer_id(name) for name in "abc"} and servers[peer_id("a")]["up"] == [[first, first + 2]]
    (incident,) = by_type(found, "incident")
    assert incident["kind"] == "hole" and incident["ended"] is not None and incident["prefix"] == "tiny-hf"
    assert {hour["hour"] for hour in by_type(found, "model_hour")} == {14}


def test_a_model_of_a_size_that_nobody_names_says_so(a_day: None) -> None:
    WatchedModel.objects.update(at_least=True)
    (model,) = (line for line in lines_of(DAY) if line["type"] == "model_day")
    assert (model["num_blocks"], model["size_known"]) == (4, False)


def test_a_file_never_changes_and_is_listed(a_day: None, client: Client) -> None:
    making.make(NEXT)
    (listed,) = client.get("/exports/index.json").json()["items"]
    answer = client.get(listed["url"], headers={"Origin": "https://research.example"})
    assert hashlib.sha256(answer.content).hexdigest() == listed["sha256"] and len(answer.content) == listed["size_bytes"]
    assert len(lines(answer.content)) == listed["lines"]
    assert answer["Cache-Control"] == "public, immutable, max-age=31536000" and answer["Content-Type"] == "application/gzip"
    assert "Content-Encoding" not in answer and answer["Access-Control-Allow-Origin"] == "*"
    assert client.get(listed["url"], headers={"If-None-Match": answer["ETag"]}).status_code == 304
    assert listed["url"] in client.get("/exports").content.decode()


def test_running_again_makes_nothing_and_the_same_history_is_the_same_bytes(a_day: None) -> None:
    making.make(NEXT)
    assert making.make(NEXT) == []
    assert making.packed(DAY)[0] == bytes(Export.objects.get().body)


def test_a_day_that_is_not_over_or_not_counted_is_not_exported(a_day: None, settings: Any) -> None:
    assert making.missing(NEXT.replace(minute=5)) == []
    assert making.missing(moment(NOW + 100)) == []
    assert making.missing(NEXT) == [DAY]
    settings.SEPAL_EXPORT_DAYS = 0
    assert making.missing(NEXT) == []


def test_days_are_kept_as_long_as_the_setting_says(a_day: None, settings: Any, client: Client) -> None:
    settings.SEPAL_EXPORT_DAYS = 3
    making.make(NEXT)
    making.forget(NEXT + timedelta(days=2))
    assert Export.objects.count() == 1
    making.forget(NEXT + timedelta(days=3))
    assert client.get("/exports/2026-09-21.ndjson.gz").status_code == 404
    assert making.missing(NEXT + timedelta(days=3)) == [], "what is forgotten is not made again"


@pytest.mark.parametrize("path", ["2026-09-20", "2026-13-40", "0000-00-00"])
def test_days_that_are_not_there_are_not_found(client: Client, path: str) -> None:
    assert client.get(f"/exports/{path}.ndjson.gz").status_code == 404


def test_a_peer_that_opts_out_is_absent_and_leaves_old_files_when_they_are_made_again(a_day: None, client: Client) -> None:
    making.make(NEXT)
    hidden = Hidden.objects.create(kind="peer", value=peer_id("c"))
    before = client.get("/exports/2026-09-21.ndjson.gz")
    assert peer_id("c") in gzip.decompress(before.content).decode()
    call_command("remake_exports", "2026-09-21")
    after = client.get("/exports/2026-09-21.ndjson.gz")
    text = gzip.decompress(after.content).decode()
    assert peer_id("c") not in text and hidden.alias in text and after["ETag"] != before["ETag"]
    assert len(by_type(lines(after.content), "server_day")) == 3, "its minutes still count"
    with pytest.raises(CommandError):
        call_command("remake_exports", "yesterday")
