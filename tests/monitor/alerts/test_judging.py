"""From crawls to messages: for each topic once when it happens, once when it is over, and nothing while nobody sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from monitor.alerts.judging import judge
from monitor.alerts.models import AlarmRow, Delivery, Subscription
from monitor.history import record
from monitor.history.minutes import moment
from monitor.store import store
from swarm.snapshot import Model, Outcome, PeerState
from tests.monitor.seeding import NOW, SWARM, announced, failure, online, report, seed, unreachable, visited
from tests.monitor.test_incidents import torn, whole
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


def wanting(topic: str, **more: Any) -> Subscription:
    about = {"prefix": "tiny-hf"} if topic in ("model", "redundancy") else {}
    return Subscription.objects.create(
        **{
            "swarm": SWARM, "topic": topic, "way": "webhook", "address": "https://hooks.example/x", "created_at": moment(NOW),
            "confirmed_at": moment(NOW), **about, **more,
        }
    )  # fmt: skip


def told(of: Subscription) -> list[tuple[str, str]]:
    return [(d.news, d.message["title"]) for d in Delivery.objects.filter(subscription=of).order_by("created_at")]


def looks(*crawls: Callable[[float], Model], start: float = NOW) -> None:
    """Crawls half a minute apart, and a judge after each, twice: that must not matter."""
    for number, make in enumerate(crawls):
        at = start + 30 * number
        seed(make(at), at=at)
        judge(SWARM, at + 1)
        judge(SWARM, at + 2)


def thin(at: float) -> Model:
    return model(4, online("a", 0, 4, at=at), online("b", 0, 3, at=at))


def test_a_model_that_cannot_run_is_told_once_and_its_return_once() -> None:
    mine = wanting("model")
    looks(whole, torn, torn, torn, whole, whole)
    assert told(mine) == [("fired", "tiny-hf cannot run"), ("recovered", "tiny-hf runs again")]
    first = Delivery.objects.order_by("created_at")[0].message
    assert first["text"] == "tiny-hf: block 3 has no server. The model cannot run." and first["model"] == "tiny-hf"
    assert first["event"] == "fired" and first["url"].endswith("/m/tiny-hf")


def test_redundancy_below_a_target_is_told_at_the_second_look() -> None:
    two, three = wanting("redundancy", target=2), wanting("redundancy", target=3)
    looks(whole, thin, whole, thin, thin)
    assert told(two) == [("fired", "tiny-hf is below 2 servers a block")]
    assert told(three) == [("fired", "tiny-hf is below 3 servers a block")]
    looks(whole, whole, start=NOW + 300)
    assert told(two)[1:] == [("recovered", "tiny-hf has 2 servers a block again")]


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (lambda at: unreachable("a", 0, 4, at=at), "announces itself, but does not answer"),
        (lambda at: announced("a", 0, 4, PeerState.LEAVING, at), "says that it is leaving"),
        (None, "has stopped announcing itself"),
        (
            lambda at: visited(announced("a", 0, 4, PeerState.JOINING, at), Outcome.TIMEOUT, at=at),
            "is said to load its blocks, but does not answer",
        ),
    ],
    ids=["crashed", "leaving", "vanished", "said to load"],
)
def test_a_watched_server_is_told_to_be_lost_and_to_be_back(lost: Callable[[float], Any] | None, words: str) -> None:
    mine = wanting("peer", peer_id=peer_id("a"))

    def without(at: float) -> Model:
        rest = (online("b", 0, 4, at=at),)
        return model(4, *((lost(at), *rest) if lost else rest))

    looks(whole, without, without, without, whole, whole)
    short = f"…{peer_id('a')[-6:]}"
    assert told(mine) == [("fired", f"Server {short} is lost"), ("recovered", f"Server {short} is back")]
    assert words in Delivery.objects.get(news="fired").message["text"]


def test_a_server_that_was_never_seen_or_was_not_checked_is_not_lost() -> None:
    mine, other = wanting("peer", peer_id=peer_id("a")), wanting("peer", peer_id=peer_id("never"))

    def unread(at: float) -> Model:
        return model(4, online("b", 0, 3, at=at), unread=frozenset({3}))

    looks(whole, unread, unread, unread)
    assert told(mine) == told(other) == []


def test_the_first_bootstrap_peer_lost_is_told_and_the_last_louder() -> None:
    mine = wanting("bootstrap")
    one, two = peer_id("boot-1"), peer_id("boot-2")
    states = [(True, True), (False, True), (False, True), (False, False), (False, False), (True, True), (True, True)]
    for number, (first, second) in enumerate(states):
        at = NOW + 30 * number
        store(replace(report(at, whole(at)), bootstraps={one: first, two: second}))
        judge(SWARM, at + 1)
    assert told(mine) == [
        ("fired", "A bootstrap peer does not answer"),
        ("worse", "NO BOOTSTRAP PEER ANSWERS"),
        ("recovered", "All bootstrap peers answer again"),
    ]


def test_a_blind_monitor_is_told_as_such_and_never_as_the_loss_of_anything() -> None:
    everything = [
        wanting("model"), wanting("redundancy", target=4), wanting("peer", peer_id=peer_id("a")), wanting("blind"),
    ]  # fmt: skip
    seed(whole(NOW), at=NOW)
    for after in range(30, 300, 30):
        store(failure(NOW + after))
        record.watch_the_clock(SWARM, NOW + after)
        judge(SWARM, NOW + after + 1)
    assert [told(one) for one in everything] == [[], [], [], [("fired", "The monitor does not see the swarm")]]
    assert "says nothing about the servers" in Delivery.objects.get().message["text"]
    looks(whole, whole, start=NOW + 300)
    assert told(everything[3])[1:] == [("recovered", "The monitor sees the swarm again")]


def test_a_crawl_that_is_held_back_alarms_nobody() -> None:
    mine = wanting("model")
    seed(whole(NOW), at=NOW)
    for after in (30, 60, 90):
        store(replace(report(NOW + after, torn(NOW + after)), held="hard to believe", suspicion="mass-loss"))
        judge(SWARM, NOW + after + 1)
    assert told(mine) == []


def test_an_alarm_outlives_blindness_and_is_not_told_again_after_it() -> None:
    mine = wanting("model")
    looks(whole, torn, torn)
    for after in range(90, 400, 30):
        store(failure(NOW + after))
        judge(SWARM, NOW + after)
    looks(torn, torn, start=NOW + 400)
    assert [news for news, _ in told(mine)] == ["fired"]


def test_who_has_not_confirmed_or_was_stopped_is_told_nothing() -> None:
    wanting("model", confirmed_at=None)
    wanting("redundancy", target=4, stopped="410")
    looks(whole, torn, torn, torn)
    assert not Delivery.objects.exists() and not AlarmRow.objects.exists()


def test_another_swarm_is_another_matter() -> None:
    mine = wanting("model", swarm="lab")
    looks(whole, torn, torn)
    assert told(mine) == []


def test_no_message_names_a_server_that_others_have() -> None:
    wanting("model")
    wanting("redundancy", target=3)
    looks(whole, torn, torn, torn)
    for delivery in Delivery.objects.all():
        assert not any(peer_id(name)[-6:] in str(delivery.message) or f'"{name}"' in str(delivery.message) for name in "abc")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "weather"},
        {"topic": "model", "prefix": ""},
        {"topic": "peer", "peer_id": ""},
        {"topic": "redundancy", "target": 0},
        {"topic": "model", "target": 2},
        {"topic": "blind", "prefix": "tiny-hf"},
        {"topic": "model", "way": "pigeon"},
        {"topic": "model", "address": ""},
    ],
)
def test_the_database_refuses_what_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        wanting(**wrong)


def test_the_database_holds_one_open_alarm_a_subscription() -> None:
    row = {"subscription": wanting("model"), "bad_at": moment(NOW), "words": "x"}
    AlarmRow.objects.create(**row)
    with pytest.raises(IntegrityError):
        AlarmRow.objects.create(**row)
