"""What was answered and did not arrive, and what was written down by a clock that was wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db.models import F

from coordinator import followers, hints, leases, tasks
from coordinator.lease_terms import LOADING_LIFE
from coordinator.models import Follower, Lease, Phase
from swarm.wire.hints import HintAnswer, LeaseReply, LeaseStep, ReasonCode, SpanDocument
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import BEFORE, HOLED, ask, holed, now
from tests.coordinator.test_pauses import pass_time
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

HERE = Span(0, 12)
HOUR = timedelta(hours=1)


def accept() -> LeaseReply:
    lease = Lease.objects.get()
    step = LeaseStep(peer=lease.peer_id, plan_version=lease.plan_version, current=SpanDocument.of(HERE))
    return hints.accept(SWARM, lease, step, now())


def test_a_server_whose_accept_was_not_answered_is_given_its_lease_once_more() -> None:
    holed()
    first = ask("d", HERE)
    assert accept().outcome == "ok"
    again = ask("d", HERE)
    assert first.lease is not None and again.lease is not None and again.lease.id == first.lease.id
    assert accept().outcome == "ok", "and may accept it once more"


def test_and_gets_no_more_time_by_asking_so_that_the_block_is_free_for_others_soon() -> None:
    holed()
    ask("d", HERE)
    accept()
    until = Lease.objects.get().expires_at
    assert ask("d", HERE).lease is not None
    assert Lease.objects.get().expires_at == until
    pass_time(LOADING_LIFE.total_seconds())
    seen(HOLED)
    assert ask("a", HERE).lease is not None


def test_nor_does_one_that_came_back_from_a_load_that_failed() -> None:
    holed()
    ask("d", HERE)
    accept()
    leases.renew(Lease.objects.get(), now(), 0.2)
    until = Lease.objects.get().expires_at
    answer = ask("d", HERE)
    assert (answer.reason_code, answer.lease) == (ReasonCode.LEASE_OPEN, None)
    assert Lease.objects.get().expires_at == until


def test_a_server_that_serves_nothing_meanwhile_keeps_its_lease_by_asking() -> None:
    holed()
    ask("d", HERE)
    accept()
    until = Lease.objects.get().expires_at
    assert ask("d").lease is not None
    assert Lease.objects.get().expires_at > until


# ------------------------------------------------------------------------------------------------------ clocks set back


def heard_an_hour_ahead() -> None:
    """The clock was an hour ahead for a minute, and everybody asked in it."""
    for s in BEFORE.servers:
        followers.note_heartbeat(SWARM, question(s.record.public_name or "", serving=s.span), now() + HOUR)


def test_a_claim_by_a_clock_that_was_ahead_hides_no_hole() -> None:
    heard_an_hour_ahead()
    seen(HOLED)
    answers = [ask(name, HERE) for name in "da"]
    assert [answer.lease is not None for answer in answers] == [True, False]


def test_nor_is_one_counted_on_that_asked_by_it_and_not_since() -> None:
    heard_an_hour_ahead()
    seen(HOLED)
    answer = ask("a", HERE)
    assert answer.lease is not None, "d has not asked for who knows how long"


def test_a_server_that_asks_again_makes_a_claim_anew() -> None:
    seen(model(30, server("a", 0, 12)), ago_s=5)
    followers.note_heartbeat(SWARM, question("alone", serving=Span(12, 24)), now() + HOUR)
    ask("alone", Span(12, 24))
    answer = ask("b")
    assert answer.lease is not None and answer.lease.to_span() == Span(18, 30)


@pytest.mark.parametrize("fields", [{"not_before"}, {"elective_not_before"}])
def test_a_pause_by_a_clock_that_was_ahead_does_not_last_until_it_has_caught_up(fields: set[str]) -> None:
    seen(HOLED)
    holed()
    ask("d", HERE)
    lease = Lease.objects.get()
    leases.close(lease, Phase.EXPIRED, "not accepted in time", now() + HOUR)
    Follower.objects.filter(peer_id=peer_id("d")).update(**{name: F("not_before") for name in fields})
    row = Follower.objects.get(peer_id=peer_id("d"))
    assert row.not_before is not None and row.not_before > now() + HOUR
    for elective in (False, True):
        assert peer_id("d") in followers.movable(SWARM, "tiny-hf", now(), elective=elective)
    assert ask("d", HERE).lease is not None


def test_a_pause_by_a_right_clock_holds() -> None:
    holed()
    ask("d", HERE)
    leases.close(Lease.objects.get(), Phase.EXPIRED, "not accepted in time", now())
    assert peer_id("d") not in followers.movable(SWARM, "tiny-hf", now())
    assert ask("d", HERE).reason_code is ReasonCode.ASKED_NOT_TO


# ------------------------------------------------------------------------------------------------------ vanished models


def arrival(name: str, prefix: str = "tiny-hf") -> HintAnswer:
    return hints.answer(SWARM, question(name, 4, prefix=prefix), now(), "here")


def test_leases_of_a_model_that_is_seen_no_more_end_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "OPEN_LEASES_OF_AN_ADDRESS", 1)
    seen(BEFORE)
    assert arrival("new").lease is not None
    other = replace(BEFORE, prefix="other")
    seen(other)
    tasks.settle_leases()
    assert Lease.objects.open().count() == 1, "it has not run out"
    assert arrival("newer", "other").lease is None, "one is open from this address"
    pass_time(600)
    seen(other)
    assert arrival("newer", "other").lease is not None, "what has run out is not counted, closed or not"
    tasks.settle_leases()
    assert [lease.prefix for lease in Lease.objects.open()] == ["other"]
    assert Lease.objects.get(prefix="tiny-hf").phase == Phase.EXPIRED
