from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from coordinator import followers, hints, known, lease_terms, leases
from coordinator.answering import RETRY_SOON_S
from coordinator.models import Lease, Phase, Tally
from swarm.placement import Placement, advise
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, HintRequest, LeaseReply, LeaseStep, ReasonCode, SpanDocument, Urgency
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
    leases.renew(Lease.objects.get(), now(), 0.1)
    assert ask("d", Span(0, 12)).reason_code is ReasonCode.LEASE_OPEN


def test_a_server_that_was_restarted_while_it_loaded_gets_its_lease_again() -> None:
    seen(model(30, server("a", 0, 12)))
    first = ask("new")
    accept(Lease.objects.get())
    again = ask("new")
    assert first.lease is not None
    assert again.lease is not None
    assert again.lease.id == first.lease.id


def test_a_server_that_was_restarted_with_less_room_is_not_held_to_what_fitted_before() -> None:
    """It ran out of memory with the blocks of the lease, and its operator gave it fewer."""
    seen(model(30, server("a", 0, 12)))
    first = ask("new", num_blocks=12)
    accept(Lease.objects.get())
    again = ask("new", num_blocks=4)
    assert first.lease is not None and again.lease is not None
    assert again.lease.id != first.lease.id and len(again.lease.to_span()) == 4
    assert Lease.objects.get(pk=first.lease.id).close_reason == "only 4 blocks fit the server by now"
    kept = ask("new", num_blocks=8)
    assert kept.lease is not None and kept.lease.id == again.lease.id, "with more room the offer stands"


def test_a_server_that_moved_by_itself_is_not_sent_on_from_where_the_crawl_saw_it() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    Lease.objects.all().delete()
    there = ask("d", Span(9, 21))
    assert (there.lease, there.reason_code) == (None, ReasonCode.TOO_SOON)
    seen(replace(HOLED, servers=(*HOLED.servers[:2], server("d", 18, 30), server("a2", 0, 12))))
    assert ask("d", Span(18, 30)).lease is not None, "the next crawl has seen it there"


def test_an_accept_after_the_model_has_shrunk_is_stale() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    seen(model(14, server("a", 0, 12), server("d", 0, 12, throughput=9.0)))
    reply = accept(Lease.objects.get())
    assert (reply.outcome, reply.reason) == ("stale", "the model has blocks 0 to 13 by now")


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
    counted = Tally.objects.filter(outcome="stay-blind").values_list("prefix", "count")
    assert sorted(counted) == [("", 1), ("tiny-hf", 1)], "before and after it knew the model"


def test_an_unknown_model_is_said_to_be_unknown_and_its_name_is_not_kept() -> None:
    seen(replace(BEFORE, prefix="other-hf"))
    assert ask("a").reason_code is ReasonCode.UNKNOWN_MODEL
    assert list(Tally.objects.values_list("prefix", "outcome")) == [("", "stay-unknown-model")]


def roomy(name: str, num_blocks_max: int, serving: Span) -> HintRequest:
    return question(name, len(serving), serving).model_copy(update={"num_blocks_max": num_blocks_max})


def test_a_server_that_was_given_a_shorter_span_grows_again_for_a_hole() -> None:
    swarm = model(16, server("a", 0, 4), server("b", 0, 4), server("d", 4, 8))
    seen(swarm)
    for name, span in (("a", Span(0, 4)), ("b", Span(0, 4)), ("d", Span(4, 8))):
        followers.note_heartbeat(SWARM, roomy(name, 8 if name in "ab" else 4, span), now())
    asked = [roomy(name, 8, Span(0, 4)).model_copy(update={"est_load_s": 60.0}) for name in "ab"]
    leased = [answer.lease for one in asked if (answer := hints.answer(SWARM, one, now())).lease]
    assert [lease.to_span() for lease in leased if lease] == [Span(8, 16)], "one reload, and the model is whole"
    assert leased[0] is not None and leased[0].cost_s == 120.0, "twice as long as for as many blocks as it serves"


def test_and_does_not_where_its_present_length_is_enough() -> None:
    seen(model(8, server("a", 0, 2), server("b", 0, 2), server("d", 2, 6)))
    for name, span in (("a", Span(0, 2)), ("b", Span(0, 2)), ("d", Span(2, 6))):
        followers.note_heartbeat(SWARM, roomy(name, 8, span), now())
    leased = [answer.lease for name in "ab" if (answer := hints.answer(SWARM, roomy(name, 8, Span(0, 2)), now())).lease]
    assert [lease.to_span() for lease in leased if lease] == [Span(6, 8)], "with four times the blocks it would be slower"


def test_the_larger_of_two_servers_is_asked_also_when_the_other_one_asks_first() -> None:
    swarm = model(16, server("a", 0, 4), server("b", 0, 4), server("d", 4, 8))
    seen(swarm)
    first, second = sorted("ab", key=peer_id)
    for name, most in ((first, 4), (second, 8)):
        followers.note_heartbeat(SWARM, roomy(name, most, Span(0, 4)), now())
    waits = hints.answer(SWARM, roomy(first, 4, Span(0, 4)), now())
    assert (waits.reason_code, waits.lease) == (ReasonCode.OTHER_SERVER_MOVES, None)
    larger = hints.answer(SWARM, roomy(second, 8, Span(0, 4)), now()).lease
    assert larger is not None and larger.to_span() == Span(8, 16)


def test_a_move_that_fills_no_hole_keeps_the_length_of_the_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "ages_of", lambda *_: {peer_id(name): 86_400.0 for name in "abcdefg"})
    seen(model(4, *(server(name, 0, 2) for name in "abcde"), server("f", 2, 4), server("g", 2, 4)))
    asked = [hints.answer(SWARM, roomy(name, 4, Span(0, 2)), now()).lease for name in "abcde"]
    assert [len(lease.to_span()) for lease in asked if lease] == [2]


def test_an_arriving_server_is_sent_to_blocks_that_it_has_on_its_disk() -> None:
    """Among equals; the lease is for the model that they are of."""
    seen(model(12, server("a", 0, 12)))
    asked = question("new", 4).model_copy(update={"on_disk": (SpanDocument(start=5, end=10),)})
    lease = hints.answer(SWARM, asked, now()).lease
    assert lease is not None and lease.to_span() == Span(5, 9)
    Lease.objects.all().delete()
    assert ask("new", num_blocks=4).lease.to_span() == Span(0, 4)  # type: ignore[union-attr]


def test_where_too_many_leases_are_open_an_arrival_is_told_when_there_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "OPEN_LEASES_OF_AN_ADDRESS", 1)
    seen(model(30, server("a", 0, 12)))
    assert hints.answer(SWARM, question("b"), now(), "here").lease is not None
    waits = hints.answer(SWARM, question("c"), now(), "here")
    assert waits.lease is None and waits.lease_after_s == RETRY_SOON_S
    assert hints.look(SWARM, question("c"), now(), "not signed").lease_after_s is None, "waiting changes nothing"


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
    answer = hints.answer(SWARM, question("a", serving=Span(0, 12)), later)
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
    first, second = [server(name, 0, 4) for name in "abcdefgh"], [server(name, 4, 8) for name in "wxyz"]
    seen(model(8, *first, *second))
    asked = question("new", 8)
    whole = hints.look(SWARM, asked, datetime.now(UTC), "only looking").span
    told = hints.look(SWARM, asked.model_copy(update={"forward_rps": 20.0}), datetime.now(UTC), "only looking").span
    boast = hints.look(SWARM, asked.model_copy(update={"forward_rps": 1e9}), datetime.now(UTC), "only looking").span
    assert whole is not None and told is not None and boast is not None
    assert (whole.end - whole.start, boast.end - boast.start) == (8, 8), "held to a usual rate, its word changes nothing"
    assert told.to_span() == Span(4, 8)
