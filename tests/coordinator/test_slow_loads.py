"""A server that loads for hours: its lease stands, and the hole is not shut meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from coordinator import hints, known, leases
from coordinator.lease_terms import LEAST_LOADING_LIMIT_S, PATIENCE_S, patience_s
from coordinator.models import Follower, Lease, Outcome, Phase
from coordinator.needed import Needed, needed
from coordinator.seeing import Seen, look
from coordinator.sight import prospects_of, published_of
from swarm.placement import Circumstances, Placement
from swarm.snapshot import SLOW_AFTER_S, Model, PeerState
from swarm.wire.hints import HintAnswer, LeaseStep, ReasonCode
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import now
from tests.coordinator.test_pauses import pass_time
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

HERE = Span(0, 12)
SPARE = model(30, *(server(name, 0, 12) for name in "adeg"), server("c", 18, 30))
"""Nobody has blocks 12 to 17, and all but one of the four on the first blocks may go there."""
MINUTE = 60.0


def asks(name: str, serving: Span | None = HERE) -> HintAnswer:
    return hints.answer(SWARM, question(name, 12, serving), now())


def lease_of(name: str) -> Lease:
    return Lease.objects.open().get(peer_id=peer_id(name))


def takes(answer: HintAnswer) -> Lease:
    assert answer.lease is not None, answer.reason
    lease = Lease.objects.get(pk=answer.lease.id)
    assert hints.accept(SWARM, lease, LeaseStep(peer=lease.peer_id), now()).outcome == "ok"
    return Lease.objects.get(pk=lease.pk)


def loads(swarm: Model, minutes: float, progress: float = 0.0, per_minute: float = 1 / 180, *names: str) -> float:
    """So many minutes, in which those who have a lease report, and the monitor looks. The share loaded in the end."""
    for _ in range(round(minutes / 2)):
        progress += 2 * per_minute
        pass_time(2 * MINUTE)
        for lease in Lease.objects.filter(phase=Phase.ACCEPTED):
            if not names or lease.peer_id in map(peer_id, names):
                leases.renew(lease, now(), progress)
        leases.settle(SWARM, swarm, now(), now())
    seen(swarm)
    return progress


def everyone_asks() -> None:
    """So that all count as servers that follow hints."""
    for name in "adeg":
        asks(name)
    Lease.objects.all().delete()


def first_on_its_way() -> str:
    """Who was asked for the hole and has accepted."""
    seen(SPARE)
    everyone_asks()
    answers = {name: asks(name) for name in "adeg"}
    (name,) = (name for name, answer in answers.items() if answer.lease)
    takes(answers[name])
    return name


def with_online(name: str, span: Span) -> Model:
    return replace(
        SPARE, servers=(*(s for s in SPARE.servers if s.peer_id != peer_id(name)), server(name, span.start, span.end))
    )


def test_a_first_download_of_three_hours_is_not_broken_off() -> None:
    name = first_on_its_way()
    lease = lease_of(name)
    assert lease.cost_s is None, "not known before the first load"
    loads(SPARE, 178)
    assert lease_of(name).phase == Phase.ACCEPTED
    leases.settle(SWARM, with_online(name, lease.span), now() + timedelta(seconds=1), now())
    assert Lease.objects.get(pk=lease.pk).outcome == Outcome.FOLLOWED
    follower = Follower.objects.get(peer_id=peer_id(name))
    assert (follower.declines, follower.lapses) == (0, 0)


def test_meanwhile_the_hole_is_offered_to_a_second_server_and_not_to_a_third() -> None:
    first = first_on_its_way()
    others = [name for name in "adeg" if name != first]
    done = loads(SPARE, PATIENCE_S / MINUTE - 2)
    assert [asks(name).lease for name in others] == [None] * 3, "a usual load is waited for"
    loads(SPARE, 2, done)
    answers = {name: asks(name) for name in others}
    (second,) = (name for name, answer in answers.items() if answer.lease)
    offer = answers[second].lease
    assert offer is not None and offer.reason == "blocks 12–17 have no server, and who was asked before takes long"
    assert {lease.turn for lease in Lease.objects.open()} == {0, 1}
    assert asks(first).reason_code is ReasonCode.LEASE_OPEN, "its own lease stands"


def test_whoever_comes_first_ends_the_outage_and_the_other_is_welcome() -> None:
    first = first_on_its_way()
    loads(SPARE, 12)
    second = next(name for name in "adeg" if name != first and asks(name).lease)
    takes(asks(second))
    repaired = with_online(second, lease_of(second).span)
    loads(repaired, 2, 0.1)
    assert Lease.objects.get(peer_id=peer_id(second)).phase == Phase.DONE
    assert lease_of(first).phase == Phase.ACCEPTED, "what it has loaded is not lost"


def test_a_second_server_that_has_not_left_yet_stays_where_the_first_one_came() -> None:
    first = first_on_its_way()
    loads(SPARE, 12)
    second = next(name for name in "adeg" if name != first and asks(name).lease)
    seen(with_online(first, lease_of(first).span))
    reply = hints.accept(SWARM, lease_of(second), LeaseStep(peer=peer_id(second)), now())
    assert reply.outcome == "stale" and "been given a server meanwhile" in reply.reason


def test_each_further_one_is_waited_for_three_times_as_long() -> None:
    first = first_on_its_way()
    done = loads(SPARE, PATIENCE_S / MINUTE)
    second = next(name for name in "adeg" if name != first and asks(name).lease)
    takes(asks(second))
    done = loads(SPARE, patience_s(1) / MINUTE - 2, done)
    rest = [name for name in "adeg" if name not in (first, second)]
    assert [asks(name).lease for name in rest] == [None, None]
    loads(SPARE, 2, done)
    third = [answer.lease for answer in map(asks, rest) if answer.lease]
    assert len(third) == 1 and {lease.turn for lease in Lease.objects.open()} == {0, 1, 2}


def test_where_loads_that_were_seen_to_end_took_longer_the_second_is_asked_later() -> None:
    for number, minutes in enumerate((2, 40, 40)):
        place = Placement(Span(0, 1), ReasonCode.HOLE, "earlier")
        lease = leases.offer(SWARM, "tiny-hf", peer_id(f"past {number}"), place, [], None, now())
        assert lease is not None and leases.accept(lease, now())
        leases.close(lease, Phase.DONE, "seen online", now())
        Lease.objects.filter(pk=lease.pk).update(accepted_at=now() - timedelta(minutes=minutes))
    past = list(Lease.objects.values_list("pk", flat=True))
    assert leases.usual_load_s(SWARM, "tiny-hf", now()) == pytest.approx(2_400, abs=5)
    seen(SPARE)
    for name in "adeg":
        asks(name)
    Lease.objects.exclude(pk__in=past).delete()
    first = next(name for name in "adeg" if asks(name).lease)
    takes(asks(first))
    others = [name for name in "adeg" if name != first]
    done = loads(SPARE, 56)
    assert [asks(name).lease for name in others] == [None] * 3
    loads(SPARE, 6, done)
    assert len([answer for answer in map(asks, others) if answer.lease]) == 1


def test_an_arrival_is_sent_to_a_hole_that_is_waited_for_no_longer() -> None:
    first_on_its_way()
    loads(SPARE, 12)
    answer = asks("new", None)
    assert answer.lease is not None and answer.reason_code is ReasonCode.HOLE
    assert answer.lease.to_span().covers(Span(12, 18))


def wanted() -> list[Needed]:
    published = published_of(SWARM)
    return needed(published, "tiny-hf", 12, {"tiny-hf": prospects_of(published, SPARE)})


def test_pages_want_such_a_hole_filled_too() -> None:
    first_on_its_way()
    loads(SPARE, 2)
    (before,) = wanted()
    assert before.cards[0].reason_code is not ReasonCode.HOLE
    loads(SPARE, 10, 0.1)
    (after,) = wanted()
    assert after.cards[0].reason_code is ReasonCode.HOLE and "model runs again" in after.cards[0].effect
    assert "are promised to servers that take long, and wanted of others too" in after.summary


def test_the_database_refuses_a_second_one_of_the_same_turn() -> None:
    place = Placement(Span(12, 24), ReasonCode.HOLE, "why")

    def offer(name: str, turn: int) -> Lease | None:
        return leases.offer(SWARM, "m", peer_id(name), place, range(12, 18), HERE, now(), leases.Terms(turn=turn))

    assert offer("a", 0) and offer("b", 1) and offer("c", 2)
    assert offer("d", 0) is None and offer("e", 1) is None and offer("a", 3) is None
    assert leases.next_turn(SWARM, "m", range(12, 18), [peer_id("a"), peer_id("b")]) == 2
    assert leases.next_turn(SWARM, "m", range(18, 24), [peer_id("a"), peer_id("b")]) == 0


def test_a_move_that_takes_long_holds_up_no_other() -> None:
    def moving() -> Circumstances:
        found = look(SWARM, ["tiny-hf"], now())["tiny-hf"]
        assert isinstance(found, Seen)
        return found.known

    first_on_its_way()
    assert moving().reloading == 1
    loads(SPARE, LEAST_LOADING_LIMIT_S / MINUTE)
    assert moving().reloading == 0 and Lease.objects.open().count() == 1
    assert known.REMEMBERED.total_seconds() > LEAST_LOADING_LIMIT_S


@pytest.mark.parametrize(("for_s", "code"), [(60.0, ReasonCode.BEING_REPAIRED), (SLOW_AFTER_S + 60.0, ReasonCode.HOLE)])
def test_who_only_says_in_the_dht_that_it_loads_keeps_a_hole_for_half_an_hour(for_s: float, code: ReasonCode) -> None:
    said = replace(SPARE, servers=(*SPARE.servers, server("liar", 12, 24, PeerState.JOINING)))
    seen(said, ago_s=for_s)
    seen(said)
    everyone_asks()
    assert code in {asks(name).reason_code for name in "adeg"}
