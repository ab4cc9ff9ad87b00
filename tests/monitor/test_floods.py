"""What models that nobody ever served may cost: no incident, a bounded number of queries, and no row for ever."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from monitor.crawl import INDEX_UNREAD, crawl
from monitor.hiding.models import Hidden
from monitor.history import retention, rollups
from monitor.history.minutes import moment
from monitor.history.models import Incident, ModelDay, ModelHour
from monitor.models import ServerRow, WatchedModel
from monitor.queries import known_models, remembered
from monitor.store import store
from swarm.snapshot import Model
from tests.monitor.seeding import NOW, SWARM, failure, online, report, seed
from tests.monitor.test_crawl import MadeUpReader
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


def named(prefix: str, at: float, *, served: bool) -> Model:
    return replace(model(2, *(online(f"{prefix} {n}", 0, 2, at=at) for n in range(2) if served)), prefix=prefix)


def both(prefix: str) -> set[str]:
    return {peer_id(f"{prefix} {n}") for n in range(2)}


def flood(count: int) -> list[Model]:
    return [Model(f"junk{n:03}", 1, None) for n in range(count)]


def names() -> set[str]:
    return set(WatchedModel.objects.values_list("prefix", flat=True))


def test_a_model_that_nobody_ever_served_has_no_incident_and_pushes_none_off_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    for after, up in ((0, True), (30, False), (60, False)):
        seed(named("real-hf", NOW + after, served=up), at=NOW + after)
    for after in (90, 120, 150):
        seed(named("real-hf", NOW + after, served=False), *flood(60), at=NOW + after)
    monkeypatch.setattr("time.time", lambda: NOW + 155)
    (row,) = Incident.objects.all()
    assert (row.kind, row.model.prefix if row.model else "", row.ended_before) == ("hole", "real-hf", None)
    assert {entry["peer_id"] for entry in row.left} == both("real-hf")
    assert "real-hf" in Client().get("/incidents.atom").content.decode()


def test_a_model_becomes_one_that_can_break_with_its_first_server() -> None:
    for after, up in ((0, False), (30, False), (60, True), (90, False), (120, False)):
        seed(named("new", NOW + after, served=up), at=NOW + after)
    row = Incident.objects.get()
    assert (row.started_after, row.started_before) == (moment(NOW + 60), moment(NOW + 90))
    assert WatchedModel.objects.get().served_at == moment(NOW + 60)


def test_models_that_break_all_at_once_cost_no_query_each() -> None:
    spent = []
    for swarm, count in (("few", 2), ("many", 40)):
        for after, up in ((0, True), (30, False), (60, False), (90, True)):
            models = [named(f"m{n:02}", NOW + after, served=up) for n in range(count)]
            with CaptureQueriesContext(connection) as queries:
                store(report(NOW + after, *models, swarm=swarm))
            spent.append(len(queries))
        rows = Incident.objects.filter(swarm=swarm)
        assert rows.count() == count and all(row.ended_before == moment(NOW + 90) for row in rows)
        for row in rows.select_related("model"):
            assert row.model is not None
            left, restored = ({entry["peer_id"] for entry in entries} for entries in (row.left, row.restored))
            assert left == restored == both(row.model.prefix)
    assert spent[:4] == spent[4:]


def test_who_left_is_told_of_each_model_by_the_minute_in_which_it_was_watched_last() -> None:
    seed(named("one", NOW, served=True), named("two", NOW, served=True), at=NOW)
    seed(named("two", NOW + 120, served=True), at=NOW + 120)
    late = NOW + 240
    seed(named("one", late, served=False), named("two", late, served=False), at=late)
    begun = {row.model.prefix: row.started_after for row in Incident.objects.select_related("model") if row.model}
    assert begun == {"one": moment(NOW // 60 * 60), "two": moment(NOW + 120)}


def test_a_failed_crawl_leaves_who_was_ever_served_as_it_was() -> None:
    seed(named("one", NOW, served=True), named("two", NOW, served=False), at=NOW)
    store(failure(NOW + 30))
    seen = remembered(SWARM, NOW + 40)
    assert seen is not None and seen.served == ("one",)


def forget(now: datetime) -> None:
    """With a crawl that bears out that the clock is right."""
    store(failure(now.timestamp() - 3_700))
    retention.forget(now)


def test_models_that_nobody_ever_served_are_forgotten_after_a_week_and_others_after_a_year() -> None:
    seed(named("served", NOW, served=True), named("never", NOW, served=False), at=NOW)
    Hidden.objects.create(kind="name", value="never")
    rollups.roll_up(moment(NOW + 120))
    forget(moment(NOW) + timedelta(days=7))
    assert names() == {"served", "never"}
    for _ in range(2):
        forget(moment(NOW) + timedelta(days=7, seconds=1))
        assert names() == {"served"} and ModelDay.objects.count() == 1
    assert Hidden.objects.count() == 1, "what was decided goes by name"
    forget(moment(NOW) + timedelta(days=401))
    assert names() == {"served"}, "its server has not been seen to leave"
    ServerRow.objects.all().delete()
    forget(moment(NOW) + timedelta(days=400))
    assert names() == {"served"}
    forget(moment(NOW) + timedelta(days=400, seconds=1))
    assert names() == set()


def test_a_model_that_is_configured_or_has_a_past_of_its_own_is_not_forgotten_with_the_junk(settings) -> None:  # type: ignore[no-untyped-def]
    settings.SEPAL_SWARMS = [{**settings.SEPAL_SWARMS[0], "models": ["_mine"]}]
    seed(*(named(prefix, NOW, served=False) for prefix in ("_mine", "noted", "restored", "junk")), at=NOW)
    noted, restored = (WatchedModel.objects.get(prefix=prefix) for prefix in ("noted", "restored"))
    Incident.objects.create(swarm=SWARM, model=noted, kind="hole", started_before=moment(NOW), bad_at=moment(NOW), blocks=[1])
    ModelHour.objects.create(
        model=restored, hour=moment(NOW), watched=1, broken=0, thin=0, unknown=0, servers_min=1, servers_mean=1.0
    )
    forget(moment(NOW) + timedelta(days=30))
    assert names() == {"_mine", "noted", "restored"}
    forget(moment(NOW) + timedelta(days=500))
    assert names() == {"_mine"}


def test_an_index_that_could_not_be_read_is_said_on_the_pages_and_no_model_is_forgotten_for_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(named("quiet", NOW, served=False), at=NOW)
    reader = MadeUpReader({}, {}, index_read=False)
    later = NOW + 3_000
    report = asyncio.run(crawl(SWARM, reader, lambda: later, known_models(SWARM, later), remembered(SWARM, later)))
    store(report)
    assert "quiet" in known_models(SWARM, NOW + 6_000), "it would be forgotten after an hour"
    monkeypatch.setattr("time.time", lambda: later + 5)
    for page in ("/", "/m/quiet"):
        html = client.get(page).content.decode()
        assert "index-unread" in html and "so that new models are not shown" in html and INDEX_UNREAD.detail in html
    assert client.get("/api/v1/crawls").json()["items"][0]["dropped"] == {"index-unread": 1}


def test_the_migration_knows_from_the_history_who_was_served() -> None:
    seed(named("minutes", NOW, served=True), named("never", NOW, served=False), named("hours", NOW, served=False), at=NOW)
    ModelHour.objects.create(
        model=WatchedModel.objects.get(prefix="hours"),
        hour=moment(NOW - 7_200),
        watched=1,
        broken=0,
        thin=0,
        unknown=0,
        servers_min=0,
        servers_mean=0.5,
    )
    ServerRow.objects.all().delete()
    WatchedModel.objects.update(served_at=None)
    with connection.cursor() as cursor:
        cursor.execute(importlib.import_module("monitor.migrations.0015_served_at").KNOWN)
    found = dict(WatchedModel.objects.values_list("prefix", "served_at"))
    assert found == {"minutes": moment(NOW // 60 * 60), "never": None, "hours": moment(NOW - 7_200)}
