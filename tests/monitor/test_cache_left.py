"""How much cache servers have left over time: in the minutes, hour by hour, on the page and in the API."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from django.db import IntegrityError, connection
from django.test import Client

from monitor import queries
from monitor.history import backup, rollups
from monitor.history.minutes import moment
from monitor.history.models import PeerDay, PeerSample
from swarm.snapshot import Server
from tests.monitor.seeding import NOW, online, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db
MIDNIGHT = NOW // 86_400 * 86_400
HOUR_S = 3_600


def with_room(name: str, tokens: int | None, start: int = 0, end: int = 2) -> Server:
    """Room for a session of so many tokens: keys and values of each block take some."""
    who = online(name, start, end)
    assert who.visit is not None
    left = None if tokens is None else tokens * 2 * (end - start)
    return replace(who, visit=replace(who.visit, cache_tokens_left=left))


def seen(at: float, *servers: Server) -> None:
    seed(model(2, *servers), at=at)
    rollups.roll_up(moment(at))


def a_day() -> None:
    """Two full minutes in the first hour, one of them seen twice; nothing said in the third; unreachable in the fifth."""
    for at, tokens in ((0, 500), (30, 100), (60, 300), (2 * HOUR_S, None), (3 * HOUR_S, 0)):
        seen(MIDNIGHT + at, with_room("a", tokens))
    dark = unreachable("a", 0, 2)
    seen(MIDNIGHT + 4 * HOUR_S, replace(dark, record=replace(dark.record, cache_tokens_left=4_000)))


def test_a_minute_keeps_the_least_that_a_server_said_while_it_was_online() -> None:
    a_day()
    told = list(PeerSample.objects.order_by("ts").values_list("cache_tokens", flat=True))
    assert told == [100, 300, None, 0, None]


def test_hours_hold_the_mean_and_the_least_and_counting_them_again_changes_nothing() -> None:
    a_day()
    row = PeerDay.objects.get()
    assert row.cache_mean == [200, None, None, 0, *[None] * 20]
    assert row.cache_least == [100, None, None, 0, *[None] * 20]
    rollups.roll_up_hour(moment(MIDNIGHT))
    rollups.roll_up_hour(moment(MIDNIGHT + 3 * HOUR_S))
    again = PeerDay.objects.get()
    assert (again.cache_mean, again.cache_least) == (row.cache_mean, row.cache_least)


def test_a_server_that_never_says_has_no_hours_at_all() -> None:
    for after in (0, HOUR_S):
        seen(MIDNIGHT + after, with_room("a", None))
    row = PeerDay.objects.get()
    assert row.cache_mean is None and row.cache_least is None


def test_a_boast_is_kept_within_the_column() -> None:
    seen(MIDNIGHT, with_room("a", 2**40))
    assert PeerDay.objects.get().cache_mean == [2**31 - 1, *[None] * 23]


@pytest.mark.parametrize(
    "statement",
    ["UPDATE monitor_peersample SET cache_tokens = -1", "UPDATE monitor_peerday SET cache_least = ARRAY[1]"],
)
def test_the_database_refuses_what_cannot_be(statement: str) -> None:
    seen(MIDNIGHT, with_room("a", 5))
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_page_draws_it_beside_the_throughput_and_says_it_in_words_and_in_a_table(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_day()
    monkeypatch.setattr(queries.time, "time", lambda: MIDNIGHT + 4 * HOUR_S + 12)
    html = " ".join(client.get(f"/p/{peer_id('a')}").content.decode().split())
    day = moment(MIDNIGHT).strftime("%-d %b")
    assert html.index("Reported throughput, last 7 days") < html.index("Cache left, last 7 days")
    assert f"room for 100 tokens; the least was 0, in the hour from {day} 03:00 UTC." in html
    assert '<th scope="col" class="number" data-unit="tokens">cache left, mean</th>' in html and 'data-column="2"' in html
    assert '<td class="number" data-value="200">200</td><td class="number">100</td>' in html
    assert '<td class="number" data-value="">–</td><td class="number">–</td>' in html


def test_where_it_never_said_the_page_shows_no_empty_drawing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(MIDNIGHT, with_room("a", None))
    monkeypatch.setattr(queries.time, "time", lambda: MIDNIGHT + 12)
    html = client.get(f"/p/{peer_id('a')}").content.decode()
    assert "Reported throughput, last 7 days" in html and "Hour by hour" in html and "Cache left, last 7 days" not in html
    assert "cache left, mean" not in html


def test_the_api_tells_the_hours_of_the_last_week(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    a_day()
    monkeypatch.setattr("monitor.api.history.time.time", lambda: MIDNIGHT + 4 * HOUR_S + 12)
    (item,) = client.get(f"/api/v1/peers/{peer_id('a')}/uptime").json()["items"]
    day = moment(MIDNIGHT).strftime("%Y-%m-%d")
    assert item["hours"] == [
        {
            "begins_at": f"{day}T{hour:02}:00:00Z",
            "throughput_tokens_per_second": 10.0,
            "cache_tokens_left_per_block": mean,
            "least_cache_tokens_left_per_block": least,
        }
        for hour, mean, least in ((0, 200, 100), (2, None, None), (3, 0, 0))
    ]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_backup_from_before_there_was_any_is_put_back(tmp_path: Path) -> None:
    a_day()
    backup.take(tmp_path)
    manifest = json.loads((tmp_path / backup.MANIFEST).read_text())
    manifest["migration"] = "0005_network"
    for part in manifest["parts"]:
        newer = {"cache_tokens", "cache_mean", "cache_least", "block_minutes"}
        kept = [column for column in part["columns"] if column not in newer]
        if kept != part["columns"]:
            part["sha256"] = rewritten(tmp_path / f"{part['table']}.copy.gz", part["table"], kept)
            part["columns"] = kept
    (tmp_path / backup.MANIFEST).write_text(json.dumps(manifest))
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(backup.tables())} RESTART IDENTITY CASCADE")
    backup.put_back(tmp_path)
    row = PeerDay.objects.get()
    assert len(row.up) == 4 and row.cache_mean is None and row.block_minutes == [0] * 24
    assert PeerSample.objects.count() == 5


def rewritten(path: Path, table: str, columns: list[str]) -> str:
    """The table's file with these columns only; its digest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup, "columns_of", lambda _: tuple(columns))
        return backup._take_table(path.parent, table).sha256
