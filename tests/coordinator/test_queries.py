"""A page and a document ask the database as often for thirty models as for one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from coordinator.extension import lease_documents
from coordinator.leases import prospects_of
from coordinator.models import Lease
from monitor import exposition, kept
from monitor.api import sight
from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.history.peers import peer_histories
from monitor.models import WatchedModel
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

MANY = 30


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW + 65)
    cache.clear()


def of_models(count: int) -> None:
    """Each with two servers; all these in each of them, so that a server's page has as much to show as can be."""
    for at in (NOW, NOW + 60):
        one = model(3, online("a", 0, 3, at=at), online("b", 0, 2, at=at))
        seed(*(replace(one, prefix=f"m{number}") for number in range(count)), at=at)
    rollups.roll_up(moment(NOW + 60))


def asked(path: str) -> int:
    for keeper in (kept, sight, exposition):
        keeper.forget()
    with CaptureQueriesContext(connection) as queries:
        assert Client().get(path).status_code == 200
    return len(queries)


@pytest.mark.parametrize("path", ["/", "/api/v1/models", "/api/v1/needed", f"/p/{peer_id('a')}"])
def test_thirty_models_cost_no_more_queries_than_one(path: str) -> None:
    of_models(1)
    one = asked(path)
    of_models(MANY)
    assert WatchedModel.objects.count() == MANY
    assert asked(path) == one


def lease(prefix: str, peer: str, origin_prefix: str = "") -> Lease:
    now = datetime.now(UTC)
    origin = (0, 2) if origin_prefix else (None, None)
    return Lease.objects.create(
        swarm=SWARM, prefix=prefix, peer_id=peer, start=0, end=3, origin_prefix=origin_prefix,
        origin_start=origin[0], origin_end=origin[1], urgency="hole", reason_code="hole", reason="why",
        created_at=now, expires_at=now + timedelta(minutes=1),
    )  # fmt: skip


def test_each_model_is_told_its_own_leases_and_those_by_which_it_loses_a_server() -> None:
    comes, goes = lease("m0", "p"), lease("m1", "q", origin_prefix="m0")
    lease("m3", "r")
    documents = lease_documents(SWARM, ["m0", "m1", "m2"])
    told = {prefix: [document["id"] for document in listed] for prefix, listed in documents.items()}
    assert told == {"m0": [str(goes.pk), str(comes.pk)], "m1": [str(goes.pk)], "m2": []}
    found = prospects_of(SWARM, [replace(model(3), prefix=prefix) for prefix in ("m0", "m1", "m2")], datetime.now(UTC))
    assert [promise.peer_id for promise in found["m0"].promises] == ["p"] and found["m0"].leaving == {"q": "m1"}
    assert [promise.peer_id for promise in found["m1"].promises] == ["q"] and not found["m1"].leaving
    assert found["m2"].promises == () and found["m2"].leaving == {}


def test_what_a_server_did_in_one_model_is_not_told_of_another() -> None:
    """The second model is watched from the second minute on, and there the server is unreachable once."""
    first = model(3, online("a", 0, 3), online("b", 0, 2))
    seed(replace(first, prefix="m0"), at=NOW)
    later = model(3, online("a", 0, 3, 20.0, at=NOW + 60), online("b", 0, 2, at=NOW + 60))
    seed(replace(later, prefix="m0"), replace(model(3, online("a", 1, 2, 5.0, at=NOW + 60)), prefix="m1"), at=NOW + 60)
    rollups.roll_up(moment(NOW + 60))
    m0, m1 = (WatchedModel.objects.get(prefix=prefix).pk for prefix in ("m0", "m1"))
    found = peer_histories([m0, m1], peer_id("a"), NOW + 65)
    assert [sample.throughput for sample in found[m0].samples] == [10.0, 20.0]
    assert [(sample.span.start, sample.throughput) for sample in found[m1].samples] == [(1, 5.0)]
    assert (len(found[m0].watched), len(found[m1].watched)) == (2, 1)
    assert (found[m0].days[-1].minutes.watched, found[m1].days[-1].minutes.watched) == (2, 1)
    assert (found[m0].hours[-1].throughput, found[m1].hours[-1].throughput) == (15.0, 5.0)
    assert peer_histories([m0], "nobody", NOW) == {}
