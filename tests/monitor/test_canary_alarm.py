"""A canary that gets no answer, or a wrong one, is a series and an alarm; one that has not run for long is neither."""

from __future__ import annotations

import pytest
from django.test import Client

from monitor import queries
from monitor.alerts.conditions import Look, Wish, finding
from monitor.alerts.judging import judge
from monitor.alerts.models import Delivery, Subscription
from monitor.alerts.rules import Topic
from monitor.history.minutes import moment
from monitor.rates.facts import CANARY_COUNTS_S
from monitor.rates.models import CanaryRun
from monitor.store import store
from tests.monitor.seeding import NOW, SWARM, failure, online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db
WISH = Wish(Topic.CANARY, "tiny-hf")


def run(at: float, outcome: str = "expected", detail: str = "") -> None:
    CanaryRun.objects.create(
        swarm=SWARM,
        prefix="tiny-hf",
        at=moment(at),
        outcome=outcome,
        peers=[peer_id("a")],
        trusted_by="configured",
        detail=detail,
    )


def look(now: float) -> Look:
    return Look(queries.watch(SWARM, now))


@pytest.mark.parametrize(
    ("outcome", "bad", "words"),
    [
        ("expected", False, "was answered as expected"),
        ("unexpected", True, f"got an unexpected answer, by …{peer_id('a')[-6:]}"),
        ("failed", True, "got no answer: the chain broke"),
    ],
)
def test_what_a_canary_came_to_is_a_finding_and_a_series(
    client: Client, monkeypatch: pytest.MonkeyPatch, outcome: str, bad: bool, words: str
) -> None:
    seed(model(2, online("a", 0, 2)))
    run(NOW + 5, outcome, "the chain broke")
    found = finding(WISH, look(NOW + 12))
    assert (found.bad, found.at) == (bad, NOW + 5) and words in found.words
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    assert f'swarm_canary_ok{{model="tiny-hf"}} {float(not bad)}' in client.get("/metrics").content.decode()


def test_a_canary_of_long_ago_and_none_at_all_say_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(2, online("a", 0, 2)))
    assert finding(WISH, look(NOW + 12)).bad is None
    run(NOW - CANARY_COUNTS_S, "failed")
    assert finding(WISH, look(NOW + 12)).bad is None
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    assert "swarm_canary_ok{" not in client.get("/metrics").content.decode()


def test_an_alarm_begins_with_the_second_bad_run_and_ends_with_the_second_good_one_also_while_the_monitor_is_blind() -> None:
    wanted = Subscription.objects.create(
        swarm=SWARM, topic="canary", prefix="tiny-hf", way="webhook", address="https://hooks.example/x",
        created_at=moment(NOW), confirmed_at=moment(NOW),
    )  # fmt: skip
    seed(model(2, online("a", 0, 2)))
    store(failure(NOW + 30))
    told: list[int] = []
    for number, outcome in enumerate(["expected", "unexpected", "failed", "failed", "expected", "expected"]):
        at = NOW + 300 * number
        run(at, outcome)
        for later in (1, 2):
            judge(SWARM, at + later)
        told.append(Delivery.objects.filter(subscription=wanted).count())
    assert told == [0, 0, 1, 1, 1, 2]
    first, last = (d.message for d in Delivery.objects.order_by("created_at"))
    assert (first["title"], first["event"]) == ("tiny-hf does not answer as expected", "fired")
    assert (last["title"], last["event"]) == ("tiny-hf answers as expected again", "recovered")


def test_it_can_be_asked_for_on_the_page(client: Client) -> None:
    seed(model(2, online("a", 0, 2)))
    assert '<option value="canary">the canary through a model' in client.get("/alerts").content.decode()
    asked = {"topic": "canary", "model": "tiny-hf", "way": "webhook", "address": "https://hooks.example/x"}
    assert client.post("/alerts", asked).status_code == 200
    made = Subscription.objects.get()
    assert (made.topic, made.prefix, made.target) == ("canary", "tiny-hf", 0)
