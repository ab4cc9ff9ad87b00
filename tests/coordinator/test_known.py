"""What the coordinator knows of servers beside the snapshot: above all since when they are here."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from coordinator.known import circumstances, standing_facts
from monitor.queries import watch_everyone
from swarm.placement import MIN_AGE_S, Circumstances
from swarm.snapshot import Model, PeerState
from swarm.throughput import Basis
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.test_people import page, read
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

DAY_S = 86_400.0
BOTH = model(4, server("a", 0, 4), server("b", 0, 4))
ALONE = model(4, server("a", 0, 4))


def known() -> Circumstances:
    published = watch_everyone(SWARM).published
    assert published is not None
    seen_now, at = published.snapshot.models[0], datetime.now(UTC)
    return circumstances(SWARM, seen_now, standing_facts(published, seen_now, at), at)


def days(*seen_then: tuple[float, Model]) -> None:
    for ago_days, swarm in seen_then:
        seen(swarm, ago_s=ago_days * DAY_S)


def test_who_comes_back_after_days_is_as_new_as_who_has_just_come(client: Client) -> None:
    """A host that flaps would else be taken for one that stays, and could be asked to move at once."""
    began = datetime.now(UTC)
    days((4, BOTH), (3.9, ALONE), (2, ALONE), (0.01, ALONE), (0.0, BOTH))
    ages = known().ages_s
    assert ages[peer_id("a")] == pytest.approx(4 * DAY_S, abs=60)
    assert ages[peer_id("b")] < MIN_AGE_S
    text = page(client, f"/p/{peer_id('b')}")
    # Midnight may have passed since.
    first = {(moment - timedelta(days=4)).strftime("%-d %b") for moment in (began, datetime.now(UTC))}
    assert any(day in text for day in first), "the page says when it was first seen"


def test_what_it_reports_counts_as_a_newcomer_s_again(client: Client) -> None:
    others = [server(name, 0, 4, throughput=10.0) for name in "acde"]
    days((4, model(4, *others, server("b", 0, 4, throughput=90.0))), (3.9, model(4, *others)))
    days((0.0, model(4, *others, server("b", 0, 4, throughput=90.0))))
    found = {item["peer_id"]: item for item in read(client, "/models/tiny-hf")["servers"]}
    assert found[peer_id("b")]["belief"]["basis"] == Basis.NEWCOMER
    assert found[peer_id("b")]["believed_tokens_per_second"] == 10.0


@pytest.mark.parametrize("meanwhile", [PeerState.UNREACHABLE, PeerState.JOINING, PeerState.LEAVING])
def test_a_move_or_an_hour_out_of_reach_is_no_absence(meanwhile: PeerState) -> None:
    days((2, BOTH), (1, model(4, server("a", 0, 4), server("b", 0, 4, meanwhile))), (0.0, BOTH))
    assert known().ages_s[peer_id("b")] == pytest.approx(2 * DAY_S, abs=60)


def test_what_could_not_be_read_says_nothing_of_an_absence() -> None:
    days((2, BOTH), (1, replace(ALONE, unread_blocks=frozenset(range(4)))), (0.0, BOTH))
    assert known().ages_s[peer_id("b")] == pytest.approx(2 * DAY_S, abs=60)
