"""The life of a lease: plan versions, declines, renewals, deadlines, and the DHT as the truth."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator import followers, hints, lease_terms, leases, outcomes, plans, tallies
from coordinator.models import Follower, Lease, Outcome, Phase, Plan, Tally
from swarm.placement import Placement
from swarm.snapshot import PeerState
from swarm.wire.hints import HintAnswer, ReasonCode, SpanDocument, Urgency
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import BEFORE, HOLED, accept, ask, holed, now
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

OTHERS = tuple(s for s in HOLED.servers if s.peer_id != peer_id("d"))


def hole(block: int) -> Placement:
    return Placement(Span(block, block + 1), ReasonCode.HOLE, f"block {block} has no server")


def offered() -> Lease:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    return Lease.objects.get()


def just_after(lease: Lease) -> datetime:
    """On the day on which it was offered, also where midnight has passed since: days are counted each for itself."""
    return lease.created_at + timedelta(microseconds=1)


def accepted() -> Lease:
    lease = offered()
    assert accept(lease).outcome == "ok"
    return Lease.objects.get()


def ask_at(name: str, when: datetime, serving: Span | None = None) -> HintAnswer:
    return hints.answer(SWARM, question(name, serving=serving), when)


def test_an_offer_says_what_it_depends_on_and_what_it_costs() -> None:
    holed()
    asked = question("d", serving=Span(0, 12)).model_copy(update={"est_load_s": 2_000.0})
    lease = hints.answer(SWARM, asked, now()).lease
    assert lease is not None
    assert lease.plan_version == Plan.objects.get().version == Lease.objects.get().plan_version
    assert lease.if_unchanged == SpanDocument(start=0, end=12)
    assert (lease.cost_s, lease.deadline_s) == (2_000.0, 4_000.0)


def test_the_plan_moves_on_with_the_swarm_and_with_promises_and_only_then() -> None:
    assert plans.current_version(SWARM, HOLED) == plans.current_version(SWARM, HOLED) == 1
    turned = replace(HOLED, servers=HOLED.servers[::-1])
    assert plans.current_version(SWARM, turned) == 1
    faster = replace(HOLED, servers=(*OTHERS, server("d", 0, 12, throughput=99.0)))
    assert plans.current_version(SWARM, faster) == 1
    assert plans.current_version(SWARM, BEFORE) == 2
    seen(BEFORE)
    ask("new")
    assert plans.current_version(SWARM, BEFORE) == 3
    leases.close(Lease.objects.get(), Phase.DECLINED, "pinned", now())
    assert plans.current_version(SWARM, BEFORE) == 4


def test_an_accept_for_another_offer_is_stale() -> None:
    lease = offered()
    assert accept(lease, plan_version=lease.plan_version + 1).outcome == "stale"
    assert Lease.objects.get().phase == Phase.OFFERED
    assert accept(lease, plan_version=lease.plan_version).outcome == "ok"


def test_an_offer_holds_only_while_the_server_serves_what_it_served() -> None:
    lease = offered()
    reply = accept(lease, current=SpanDocument(start=1, end=13))
    assert (reply.outcome, reply.reason) == ("stale", "the server does not serve blocks 0–11 any more")
    assert Lease.objects.get().phase == Phase.STALE


def test_a_plan_that_moved_on_is_looked_at_again_and_the_lease_goes_with_it() -> None:
    lease = offered()
    seen(replace(HOLED, servers=(*HOLED.servers, server("far", 24, 30))))
    assert accept(lease).outcome == "ok"
    assert Lease.objects.get().plan_version > lease.plan_version


def test_two_processes_that_accept_on_different_plans_do_not_both_succeed() -> None:
    """One of them has read an older row: its conditional update finds nothing."""
    first, second = offered(), Lease.objects.get()
    assert leases.accept(first, now(), first.plan_version + 1)
    assert not leases.accept(second, now(), second.plan_version + 2)


def test_a_server_that_declines_is_not_asked_again_before_its_time() -> None:
    lease = offered()
    start = now()
    assert leases.decline(lease, "pinned", timedelta(minutes=30), start)
    answer = ask_at("d", start + timedelta(minutes=1), Span(0, 12))
    assert (answer.reason_code, answer.lease) == (ReasonCode.ASKED_NOT_TO, None)
    assert "pinned" in answer.reason
    assert ask("a", Span(0, 12)).lease is not None, "it is the other one's turn"


def test_a_server_that_is_the_only_one_to_ask_is_left_alone_as_long_as_it_said() -> None:
    lease = offered()
    Follower.objects.exclude(peer_id=peer_id("d")).delete()
    start = now()
    leases.decline(lease, "pinned", timedelta(minutes=2), start)
    assert ask_at("d", start + timedelta(minutes=1), Span(0, 12)).reason_code is ReasonCode.ASKED_NOT_TO
    seen(HOLED)
    assert ask_at("d", start + timedelta(minutes=3), Span(0, 12)).lease is not None


def test_each_decline_doubles_the_pause_and_following_a_hint_ends_that() -> None:
    assert [lease_terms.pause_after(n).total_seconds() / 60 for n in (1, 2, 3, 20)] == [1, 2, 4, 240]
    leases.decline(offered(), "busy-sessions", timedelta(), now())
    assert Follower.objects.get(peer_id=peer_id("d")).declines == 1
    Follower.objects.update(not_before=None)
    accept(Lease.objects.get(pk=ask("d", Span(0, 12)).lease.id))  # type: ignore[union-attr]
    lease = Lease.objects.open().get()
    moved = replace(HOLED, servers=(*OTHERS, server("d", lease.start, lease.end)))
    leases.settle(SWARM, moved, now(), now())
    assert Follower.objects.get(peer_id=peer_id("d")).declines == 0


def test_an_arrival_is_told_where_to_go_whatever_it_declined() -> None:
    seen(BEFORE)
    ask("new")
    leases.decline(Lease.objects.get(), "too-soon", timedelta(hours=1), now())
    assert ask("new").lease is not None


def test_asking_renews_an_accepted_lease_up_to_its_deadline() -> None:
    lease = accepted()
    later = now() + timedelta(seconds=100)
    ask_at("d", later, None)
    renewed = Lease.objects.get()
    assert renewed.expires_at == later + lease_terms.LOADING_LIFE and renewed.renewals == lease.renewals + 1
    assert renewed.deadline_at is not None
    Lease.objects.update(expires_at=renewed.deadline_at, deadline_at=renewed.deadline_at)
    leases.renew(renewed, renewed.deadline_at - timedelta(seconds=1))
    assert Lease.objects.get().expires_at == renewed.deadline_at


def test_a_server_that_begins_anew_may_report_less_than_before() -> None:
    """It was restarted: what it had loaded is gone, and no more time is given."""
    lease = accepted()
    assert leases.renew(lease, now(), 0.8)
    before = Lease.objects.get()
    assert accept(before).outcome == "ok"
    again = Lease.objects.get()
    assert (again.progress, again.accepted_at, again.deadline_at) == (0.0, before.accepted_at, before.deadline_at)
    assert leases.renew(again, now(), 0.1) and Lease.objects.get().progress == 0.1


def test_a_server_that_fell_silent_while_loading_gives_the_blocks_back() -> None:
    accepted()
    Lease.objects.update(expires_at=now())
    leases.settle(SWARM, HOLED, now(), now())
    broken = Lease.objects.get()
    assert broken.outcome == Outcome.BROKEN_OFF
    assert leases.open_promises(SWARM, HOLED, now()) == ()
    assert ask("a", Span(0, 12)).lease is not None, "and the next server has them"


def test_the_dht_is_the_truth_for_a_server_that_went_elsewhere() -> None:
    lease = accepted()
    elsewhere = replace(HOLED, servers=(*OTHERS, server("d", 26, 30)))
    leases.settle(SWARM, elsewhere, now() + timedelta(seconds=1), now())
    closed = Lease.objects.get()
    assert (closed.phase, closed.close_reason) == (Phase.STALE, "seen online with blocks 26–29 instead")
    assert not lease.span.overlaps(Span(26, 30))


@pytest.mark.parametrize("span", [Span(0, 12), Span(0, 11)], ids=["where it was", "where one block could not be read"])
def test_a_server_that_is_still_loading_keeps_its_lease(span: Span) -> None:
    accepted()
    leases.settle(SWARM, replace(HOLED, servers=(*OTHERS, server("d", span.start, span.end))), now(), now())
    assert Lease.objects.get().phase == Phase.ACCEPTED


def test_a_coordinator_without_its_tables_goes_on_from_the_dht() -> None:
    """A server that loads after an accepted lease has announced JOINING: that is the reservation then."""
    lease = accepted()
    for table in (Lease, Follower, Plan, Tally):
        table.objects.all().delete()
    seen(replace(HOLED, servers=(*OTHERS, server("d", lease.start, lease.end, PeerState.JOINING))))
    for name in ("a", "d"):
        answer = ask(name, Span(0, 12))
        assert answer.advice == "stay"
        assert answer.reason_code is ReasonCode.BEING_REPAIRED


def test_after_a_pause_of_the_coordinator_what_ran_out_meanwhile_is_given_back_first() -> None:
    lease = offered()
    seen(HOLED)
    answer = ask_at("a", lease.expires_at + timedelta(minutes=5), Span(0, 12))
    assert Lease.objects.get(pk=lease.pk).outcome == Outcome.IGNORED
    assert answer.reason_code is ReasonCode.HOLE


def test_what_a_hint_came_to_is_counted_by_day() -> None:
    seen(BEFORE)
    ask("new")
    at = just_after(Lease.objects.get())
    leases.close(Lease.objects.get(), Phase.EXPIRED, "not accepted in time", at)
    today = tallies.by_day(SWARM, "tiny-hf", at, 1)[at.date()]
    assert today == {"offered": 1, "ignored": 1}
    Tally.objects.update(day=at.date() - timedelta(days=40))
    assert outcomes.days(SWARM, None, at) == []


def test_the_time_of_a_repair_is_the_median_of_the_days_filled_holes() -> None:
    at = now()
    for index, seconds in enumerate((100, 200, 900)):
        lease = leases.offer(SWARM, "m", peer_id(str(index)), hole(index), [index], Span(5, 6), at)
        assert lease is not None and lease.urgency == Urgency.HOLE
        Lease.objects.filter(pk=lease.pk).update(created_at=at - timedelta(seconds=seconds))
        leases.close(Lease.objects.get(pk=lease.pk), Phase.DONE, "seen online", at)
    (day,) = outcomes.days(SWARM, "m", at)
    assert day.followed == 3 and day.repaired_s == pytest.approx(200)


def test_old_leases_and_followers_are_forgotten_and_their_counts_stay() -> None:
    lease = offered()
    leases.close(lease, Phase.DECLINED, "pinned", now())
    long_after = now() + timedelta(days=91)
    leases.forget(long_after)
    followers.forget(long_after)
    assert not Lease.objects.exists() and not Follower.objects.exists()
    assert Tally.objects.get(outcome="declined").count == 1


def test_a_swarm_that_is_whole_has_arrivals_and_moves_of_other_urgency() -> None:
    seen(model(30, server("a", 0, 30)))
    lease = ask("new").lease
    assert lease is not None and lease.urgency is Urgency.ARRIVAL and lease.if_unchanged is None
    assert datetime.now(UTC) < Lease.objects.get().expires_at


def test_the_days_of_a_month_are_counted_without_reading_what_each_hint_rested_on() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    leases.close(Lease.objects.get(), Phase.DONE, "seen online", just_after(Lease.objects.get()))
    with CaptureQueriesContext(connection) as asked:
        (day,) = outcomes.days(SWARM, None, now())
    assert day.repaired_s is not None
    assert len(asked) == 2 and not [query for query in asked.captured_queries if "inputs" in query["sql"]]
