"""The slowest block in the history: as far as its servers were believed at the time, beside what they reported."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitor.exports.lines import lines_of
from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.history.models import ModelHour, ModelMinute
from monitor.published import standing
from monitor.queries import latest_snapshot
from monitor.rates.choose import Subject
from monitor.rates.evidence import note_probe
from monitor.rates.facts import Rate
from swarm.throughput import SETTLED_S
from swarm.wire.spans import Span
from tests.monitor.seeding import NOW, SWARM, online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

LATER = NOW + SETTLED_S + 60


def boastful(at: float) -> None:
    """Three usual servers on all blocks but the last, and on that one only somebody who claims a hundred times as much."""
    usual = [online(name, 0, 3, 10.0, at=at) for name in "abc"]
    seed(model(4, *usual, online("liar", 3, 4, 1000.0, at=at)), at=at)


def measured(name: str, rate: float, at: float) -> None:
    note_probe(SWARM, Subject("tiny-hf", peer_id(name), Span(3, 4)), at, Rate(rate))


def shown(at: float) -> float | None:
    """What page and JSON say at this moment."""
    published = latest_snapshot(SWARM, at)
    assert published is not None
    slowest = standing(published, published.snapshot.models[0]).coverage.bottleneck
    return slowest.throughput if slowest else None


def minutes() -> list[tuple[float | None, float | None]]:
    return list(ModelMinute.objects.order_by("ts").values_list("bottleneck", "bottleneck_believed"))


def test_a_minute_keeps_what_the_pages_said_then_beside_what_was_reported() -> None:
    said = []
    boastful(NOW)
    said.append(shown(NOW))
    measured("liar", 4.0, NOW + 30)
    for at in (NOW + 60, LATER):
        boastful(at)
        said.append(shown(at))
    assert minutes() == [(30.0, believed) for believed in said]
    assert said == [10.0, 5.0, 5.0], "as new as it is, a usual server; then what was measured, and a quarter"


def test_who_is_here_for_long_is_believed_as_pages_believe_him() -> None:
    for at in (NOW, LATER):
        usual = [online(name, 0, 3, 10.0, at=at) for name in "abc"]
        seed(model(4, *usual, online("quick", 0, 3, 20.0, at=at), online("too", 3, 4, 20.0, at=at)), at=at)
    assert minutes() == [(20.0, 10.0), (20.0, shown(LATER))]
    assert shown(LATER) == 20.0, "a newcomer counts as a usual server, and no longer than an hour"


def test_what_is_measured_later_changes_no_minute_that_was_stored() -> None:
    boastful(NOW)
    before = minutes()
    measured("liar", 1.0, NOW - 1)
    assert minutes() == before and shown(NOW) != before[0][1]


def test_two_crawls_of_a_minute_leave_the_slower_of_both_figures() -> None:
    boastful(NOW)
    measured("liar", 4.0, NOW + 5)
    for at in (NOW + 10, NOW + 15):
        boastful(at)
    assert minutes() == [(30.0, 5.0)]


def test_an_hour_and_the_open_export_hold_both_and_of_older_minutes_nobody_knows_what_was_believed() -> None:
    boastful(NOW)
    ModelMinute.objects.update(bottleneck_believed=None)
    rollups.roll_up(moment(NOW))
    assert ModelHour.objects.values_list("bottleneck_mean", "bottleneck_believed_mean").get() == (30.0, None)
    boastful(NOW + 60)
    rollups.roll_up(moment(NOW + 60))
    (hour,) = (line for line in lines_of(moment(NOW).date()) if line["type"] == "model_hour")
    assert hour["bottleneck_tokens_per_second"] == 30.0
    assert hour["believed_bottleneck_tokens_per_second"] == 10.0, "the mean of the minutes of which it is known"


def test_storing_takes_the_same_number_of_questions_however_many_servers_there_are() -> None:
    counted = []
    for at, servers in ((NOW, 2), (NOW + 60, 2), (NOW + 120, 40)):
        with CaptureQueriesContext(connection) as asked:
            seed(model(4, *(online(f"s{n}", 0, 4, at=at) for n in range(servers))), at=at)
        counted.append(len(asked))
    assert counted[1] == counted[2]
