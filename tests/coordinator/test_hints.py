from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from coordinator import followers, hints, lease_terms, leases
from coordinator.models import Lease, Phase
from swarm.placement import Placement, advise
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, LeaseReply, LeaseStep, ReasonCode, Urgency
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

BEFORE = model(30, server("a", 0, 12), server("b", 12, 24), server("c", 18, 30), server("d", 0, 12, throughput=9.0))
HOLED = replace(BEFORE, servers=tuple(s for s in BEFORE.servers if s.peer_id != peer_id("b")))


def now() -> datetime:
    return datetime.now(UTC)


def ask(name: str, serving: Span | None = None, num_blocks: int = 12) -> HintAnswer:
    return hints.answer(SWARM, question(name, num_blocks, serving), now())


def accept(lease: Lease, when: datetime | None = None, **step: Any) -> LeaseReply:
    return hints.accept(SWARM, lease, LeaseStep(peer=lease.peer_id, **step), when or now())


def everyone_asks(swarm: Model) -> dict[str, HintAnswer]:
    return {s.record.public_name or "": ask(s.record.public_name or "", s.span) for s in swarm.servers}


def holed() -> None:
    """The monitor has just seen the hole, and all servers have asked for hints before."""
    for s in HOLED.servers:
        followers.note_heartbeat(SWARM, question(s.record.public_name or "", serving=s.span), now() - timedelta(seconds=20))
    seen(HOLED)


def test_a_whole_swarm_is_told_to_stay_and_why() -> None:
    seen(BEFORE)
    answers = everyone_asks(BEFORE)
    assert {(a.advice, a.reason_code) for a in answers.values()} == {("stay", ReasonCode.SCARCE)}, (
        "1.6 times the model: nobody moves for throughput"
    )


def test_one_server_gets_the_hole_with_its_reason_and_the_others_stay() -> None:
    holed()
    answers = everyone_asks(HOLED)
    moving = {name: answer.lease for name, answer in answers.items() if answer.lease}
    assert list(moving) == ["d"]
    lease = moving["d"]
    assert lease is not None
    assert lease.reason == "blocks 12–17 have no server"
    assert lease.urgency is Urgency.HOLE
    assert lease.to_span().covers(Span(12, 18))


def test_a_hint_without_open_leases_is_what_the_server_would_decide_alone() -> None:
    holed()
    for s in HOLED.servers:
        alone = advise(HOLED, s.peer_id, len(s.span), serving=s.span)
        hinted = ask(s.record.public_name or "", s.span)
        Lease.objects.all().delete()
        assert hinted.reason_code == alone.reason_code
        assert (hinted.lease.to_span() if hinted.lease else None) == (alone.placement.span if alone.placement else None)


def test_asking_again_gives_the_same_lease_and_an_accepted_one_means_stay() -> None:
    holed()
    first, second = ask("d", Span(0, 12)), ask("d", Span(0, 12))
    assert first.lease is not None
    assert second.lease is not None
    assert first.lease.id == second.lease.id
    assert accept(Lease.objects.get()).outcome == "ok"
    assert ask("d", Span(0, 12)).reason_code is ReasonCode.LEASE_OPEN


def test_a_server_that_was_restarted_while_it_loaded_gets_its_lease_again() -> None:
    seen(model(30, server("a", 0, 12)))
    first = ask("new")
    accept(Lease.objects.get())
    again = ask("new")
    assert first.lease is not None
    assert again.lease is not None
    assert again.lease.id == first.lease.id


def test_arrivals_at_the_same_moment_are_spread_over_the_model() -> None:
    seen(model(30, server("a", 0, 12)))
    spans = [answer.lease.to_span() for answer in (ask("b"), ask("c")) if answer.lease]
    assert spans == [Span(12, 24), Span(18, 30)]


def test_a_heartbeat_newer_than_the_crawl_says_where_a_server_is() -> None:
    """Between two crawls a server that decided alone is not to be doubled by the next arrival."""
    seen(model(30, server("a", 0, 12)), ago_s=5)
    ask("alone", serving=Span(12, 24))
    answer = ask("b")
    assert answer.lease is not None
    assert answer.lease.to_span() == Span(18, 30)


def test_a_heartbeat_older_than_the_crawl_counts_for_nothing() -> None:
    seen(model(30, server("a", 0, 12)), ago_s=5)
    ask("dead", serving=Span(12, 24))
    seen(model(30, server("a", 0, 12)))
    answer = ask("b")
    assert answer.lease is not None
    assert answer.lease.to_span() == Span(12, 24)


def test_a_blind_monitor_advises_nothing_and_says_so() -> None:
    assert ask("a").reason_code is ReasonCode.BLIND
    seen(HOLED, ago_s=3600)
    answer = ask("d", Span(0, 12))
    assert (answer.advice, answer.reason_code) == ("stay", ReasonCode.BLIND)
    assert not Lease.objects.exists()


def test_an_unknown_model_is_said_to_be_unknown() -> None:
    seen(replace(BEFORE, prefix="other-hf"))
    assert ask("a").reason_code is ReasonCode.UNKNOWN_MODEL


def test_accepting_after_somebody_else_came_is_stale_and_gives_the_lease_back() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    seen(BEFORE)
    reply = accept(Lease.objects.get())
    assert reply.outcome == "stale"
    assert "have been given a server meanwhile" in reply.reason
    assert Lease.objects.get().phase == Phase.STALE


def test_a_lease_is_done_when_a_later_crawl_sees_the_server_online_there() -> None:
    holed()
    lease = ask("d", Span(0, 12)).lease
    assert lease is not None
    accept(Lease.objects.get())
    stayed = (s for s in HOLED.servers if s.peer_id != peer_id("d"))
    healed = replace(HOLED, servers=(*stayed, server("d", lease.start, lease.end)))
    at = seen(healed)
    assert leases.settle(SWARM, healed, datetime.fromtimestamp(at, UTC), now())
    assert Lease.objects.get().phase == Phase.DONE


def test_an_offer_that_nobody_accepts_goes_back_to_the_next_server() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    later = now() + lease_terms.OFFER_LIFE + timedelta(seconds=1)
    at = seen(HOLED)
    leases.settle(SWARM, HOLED, datetime.fromtimestamp(at, UTC), later)
    assert Lease.objects.get().phase == Phase.EXPIRED
    assert not leases.accept(Lease.objects.get(), later)
    answer = ask("a", Span(0, 12))
    assert (answer.reason_code, answer.lease is not None) == (ReasonCode.HOLE, True), "and not to the same one once more"


def offer(name: str, *filled: int) -> Lease | None:
    placement = Placement(Span(12, 24), ReasonCode.HOLE, "blocks 12–17 have no server")
    return leases.offer(SWARM, "tiny-hf", peer_id(name), placement, filled, Span(0, 12), now())


def test_the_database_itself_refuses_a_second_open_lease_on_a_block_without_server() -> None:
    first = offer("d", 12, 17)
    assert first is not None
    assert offer("a", 17) is None
    assert offer("a", 18) is not None
    assert offer("d", 25) is None, "one open lease per peer"
    leases.close(first, Phase.DECLINED, "pinned", now())
    assert offer("c", 12) is not None


def test_the_database_refuses_an_empty_span() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Lease.objects.create(swarm=SWARM, prefix="m", peer_id="x", start=3, end=3, created_at=now(), expires_at=now())


@pytest.mark.django_db(transaction=True)
def test_of_many_servers_that_ask_at_once_exactly_one_gets_the_hole() -> None:
    names = [f"s{index}" for index in range(8)]
    swarm = model(30, *(server(name, 0, 12) for name in names), server("c", 18, 30))
    seen(swarm)
    for name in names:
        followers.note_heartbeat(SWARM, question(name, serving=Span(0, 12)), now())

    def ask_in_a_thread(name: str) -> HintAnswer:
        try:
            return ask(name, Span(0, 12))
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask_in_a_thread, names))
    assert sum(answer.lease is not None for answer in answers) == 1
    assert Lease.objects.open().count() == 1


def test_a_server_that_says_how_fast_it_is_may_be_given_fewer_blocks_and_a_large_word_gets_it_nothing_better() -> None:
    """With four blocks of eight it is almost twice as fast, and it is these four that lack throughput."""
    first, second = [server(name, 0, 4) for name in "abcde"], [server(name, 4, 8) for name in "xy"]
    seen(model(8, *first, *second))
    asked = question("new", 8)
    whole = hints.look(SWARM, asked, datetime.now(UTC), "only looking").span
    told = hints.look(SWARM, asked.model_copy(update={"forward_rps": 20.0}), datetime.now(UTC), "only looking").span
    boast = hints.look(SWARM, asked.model_copy(update={"forward_rps": 1e9}), datetime.now(UTC), "only looking").span
    assert whole is not None and told is not None and boast is not None
    assert (whole.end - whole.start, boast.end - boast.start) == (8, 8), "held to a usual rate, its word changes nothing"
    assert told.to_span() == Span(4, 8)
