"""Servers that do not follow hints: whose turn it is then, and for what they are still asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.db.models import F

from coordinator import followers, hints, known, lease_terms, leases, pauses, unasked
from coordinator.models import Follower, Lease, Phase
from swarm.placement import Circumstances
from swarm.snapshot import Model
from swarm.wire.hints import HintAnswer, LeaseStep, ReasonCode, Urgency
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import HOLED, ask, holed, now
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

POLL_S = 60.0
BUSY = "busy-sessions: 3 sessions are open, and no hole waits"
LOPSIDED = model(4, *(server(name, 0, 2) for name in "abcde"), server("f", 2, 4), server("g", 2, 4))
WITHOUT_F_AND_G = replace(LOPSIDED, servers=LOPSIDED.servers[:5])


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers have been there for a day: the planner may move them for throughput."""
    monkeypatch.setattr(known, "ages_of", lambda *_: {peer_id(name): 86_400.0 for name in "abcdefgh"})


def pass_time(seconds: float) -> None:
    """What is written down is so much older; the clock stands still."""
    by = timedelta(seconds=seconds)
    times = {
        Lease: ("created_at", "expires_at", "accepted_at", "deadline_at", "progressed_at", "closed_at"),
        Follower: ("asked_at", "claimed_at", "not_before", "elective_not_before", "paused_at"),
    }
    for table, names in times.items():
        table.objects.update(**{name: F(name) - by for name in names})


def asks(name: str, serving: Span, **more: object) -> HintAnswer:
    asked = question(name, len(serving), serving).model_copy(update=more)
    return hints.answer(SWARM, asked, now())


def polls(swarm: Model, names: Iterable[str], seconds: float, takes: str = "") -> dict[str, list[float]]:
    """Each of `names` asks once a minute and does nothing else, but for `takes`, which accepts and never loads. When offers
    were made to whom, in seconds."""
    offers: dict[str, list[float]] = {name: [] for name in names}
    spans = {s.record.public_name: s.span for s in swarm.servers}
    seen(swarm)
    for poll in range(int(seconds / POLL_S)):
        for name, found in offers.items():
            answer = asks(name, spans[name])
            if answer.lease is not None:
                found.append(poll * POLL_S)
                if name == takes:
                    hints.accept(SWARM, Lease.objects.get(pk=answer.lease.id), LeaseStep(peer=peer_id(name)), now())
        pass_time(POLL_S)
    return offers


def declined(lease: Lease, words: str, not_again: timedelta = timedelta()) -> Follower:
    leases.decline(lease, words, not_again, now())
    return Follower.objects.get(peer_id=lease.peer_id)


def test_after_one_lapse_the_hole_goes_to_the_next_server() -> None:
    holed()
    offers = polls(HOLED, ("d", "a"), 300.0)
    assert offers["d"][0] == 0.0
    lapsed = lease_terms.OFFER_LIFE.total_seconds()
    assert lapsed <= offers["a"][0] <= lapsed + POLL_S, "the planner's second choice did not wait for the first again"


def test_who_ignores_offers_is_asked_less_and_less_often() -> None:
    holed()
    offers = polls(HOLED, ("d", "a"), 1_500.0)
    # Asked again after 1, 2, 4, 8 minutes; each offer itself stands for a minute and a half.
    per_server = Counter(Lease.objects.values_list("peer_id", flat=True))
    assert 3 <= per_server[peer_id("d")] <= 5 and 3 <= per_server[peer_id("a")] <= 5
    assert offers["a"], "the other donor had its turn"
    assert (
        Follower.objects.get(peer_id=peer_id("d")).lapses
        == Lease.objects.filter(peer_id=peer_id("d"), phase=Phase.EXPIRED).count()
    )


def test_who_takes_a_lease_and_goes_on_asking_without_loading_loses_it_soon_and_the_next_one_has_the_hole() -> None:
    holed()
    offers = polls(HOLED, ("d", "a"), 900.0, takes="d")
    first = Lease.objects.filter(peer_id=peer_id("d")).earliest("created_at")
    assert first.close_reason == "no progress for 10 minutes"
    assert lease_terms.STALLED_AFTER_S <= offers["a"][0] <= lease_terms.STALLED_AFTER_S + POLL_S


def test_a_lease_whose_progress_moves_stands_past_that_time() -> None:
    holed()
    asks("d", Span(0, 12))
    lease = Lease.objects.get()
    hints.accept(SWARM, lease, LeaseStep(peer=peer_id("d")), now())
    for minute in range(15):
        assert leases.renew(lease, now(), progress=minute / 20)
        pass_time(60.0)
        leases.settle(SWARM, HOLED, now(), now())
    assert Lease.objects.get().phase == Phase.ACCEPTED
    for minute in range(9):
        assert leases.renew(lease, now(), progress=(14 - minute % 2) / 20)
        pass_time(60.0)
    leases.settle(SWARM, HOLED, now(), now())
    assert Lease.objects.get().phase == Phase.EXPIRED, (
        "no more than before for ten minutes is no progress, back and forth is none"
    )


def test_an_arrival_that_kept_no_promise_is_told_where_to_go_and_holds_nothing() -> None:
    seen(model(30, server("a", 0, 12)))
    assert ask("new").lease is not None
    pass_time(lease_terms.OFFER_LIFE.total_seconds() + 1)
    answer = ask("new")
    assert (answer.advice, answer.lease) == ("move", None) and answer.span is not None
    assert "it let an offer lapse" in (answer.no_lease_because or "")
    pass_time(61.0)
    assert ask("new").lease is not None


def test_following_a_hint_ends_all_growing_pauses() -> None:
    holed()
    asks("d", Span(0, 12))
    lease = Lease.objects.get()
    Follower.objects.filter(peer_id=peer_id("d")).update(declines=5, lapses=3, elective_declines=4)
    leases.close(lease, Phase.DONE, "seen online", now())
    follower = Follower.objects.get(peer_id=peer_id("d"))
    assert (follower.declines, follower.lapses, follower.elective_declines) == (0, 0, 0)


def test_a_clock_that_was_set_back_is_nobody_s_fault() -> None:
    holed()
    asks("d", Span(0, 12))
    pass_time(-7200.0)
    leases.settle(SWARM, HOLED, now(), now())
    assert Lease.objects.get().phase == Phase.STALE
    assert Follower.objects.get(peer_id=peer_id("d")).lapses == 0


def test_servers_that_declined_for_their_sessions_all_day_are_asked_for_a_hole_at_once(settled: None) -> None:
    times = 0
    seen(LOPSIDED)
    for _ in range(12):
        for name in "abcde":
            answer = asks(name, Span(0, 2))
            if answer.lease is not None:
                assert answer.lease.urgency is not Urgency.HOLE
                declined(Lease.objects.get(pk=answer.lease.id), BUSY)
                times += 1
        pass_time(1_800.0)
    assert times > 8, "otherwise this shows nothing"
    answer = asks("a", Span(0, 2))
    assert answer.lease is not None or answer.reason_code in (ReasonCode.ASKED_NOT_TO, ReasonCode.OTHER_SERVER_MOVES)
    Lease.objects.open().delete()
    seen(WITHOUT_F_AND_G)
    answers = [asks(name, Span(0, 2)) for name in "abcde"]
    assert [answer.lease.urgency for answer in answers if answer.lease] == [Urgency.HOLE]


def test_no_move_that_fills_no_hole_is_offered_while_sessions_are_open(settled: None) -> None:
    seen(LOPSIDED)
    for name in "abcde":
        asks(name, Span(0, 2), sessions_active=2)
    answers = [asks(name, Span(0, 2), sessions_active=2) for name in "abcde"]
    assert not Lease.objects.exists()
    told = [answer for answer in answers if answer.reason_code is ReasonCode.ASKED_NOT_TO]
    assert told and "sessions are open" in told[0].reason
    free = asks("e", Span(0, 2))
    assert free.lease is not None and free.lease.urgency is not Urgency.HOLE, "the one without sessions is the one to ask"


@pytest.mark.parametrize(
    ("words", "not_again_s"),
    [
        ("pinned", 0),
        ("disk: 40 GB to fetch, 2 GB free", 0),
        ("memory", 0),
        ("failed: it ran out of memory", 0),
        ("tired", 0),
        (BUSY, 60),
    ],
)
def test_other_reasons_and_what_a_server_asks_for_itself_hold_for_holes_too(
    settled: None, words: str, not_again_s: float
) -> None:
    assert not_again(offered_elective(), words, not_again_s) > now()


@pytest.mark.parametrize("words", [BUSY, "too-soon: moved 60 s ago", "busy_sessions: as servers of before wrote it"])
def test_reasons_of_the_moment_hold_for_other_moves_only_and_grow(settled: None, words: str) -> None:
    follower = declined(offered_elective(), words)
    assert follower.not_before is None and follower.declines == 0
    assert follower.elective_not_before is not None and follower.elective_not_before > now()
    assert follower.elective_not_before < now() + timedelta(seconds=61)
    pass_time(61.0)
    Follower.objects.exclude(pk=follower.pk).delete()
    name = next(name for name in "abcde" if peer_id(name) == follower.peer_id)
    again = asks(name, Span(0, 2)).lease
    assert again is not None
    later = declined(Lease.objects.get(pk=again.id), words).elective_not_before
    assert later is not None and later > now() + timedelta(seconds=110)


def test_a_hole_that_is_declined_for_sessions_goes_to_the_next_server() -> None:
    holed()
    asks("d", Span(0, 12))
    assert declined(Lease.objects.get(), BUSY).not_before is not None
    assert asks("a", Span(0, 12)).lease is not None


def test_a_heartbeat_does_not_undo_a_pause() -> None:
    holed()
    asks("d", Span(0, 12))
    kept = declined(Lease.objects.get(), "pinned", timedelta(hours=1)).not_before
    asks("d", Span(0, 12))
    assert Follower.objects.get(peer_id=peer_id("d")).not_before == kept


@pytest.mark.parametrize("fills_hole", [True, False])
@pytest.mark.parametrize("sessions", [0, 2])
@pytest.mark.parametrize("pause_s", [None, -60.0, 60.0])
@pytest.mark.parametrize("elective_s", [None, -60.0, 60.0])
def test_whom_the_plan_counts_on_who_is_asked_and_what_others_are_told_is_one_rule(
    fills_hole: bool, sessions: int, pause_s: float | None, elective_s: float | None
) -> None:
    seen(HOLED)
    asks("a", Span(0, 12))
    at = now()
    until, elective = (None if s is None else at + timedelta(seconds=s) for s in (pause_s, elective_s))
    Follower.objects.update(sessions=sessions, not_before=until, elective_not_before=elective)
    counted = peer_id("a") in followers.movable(SWARM, "tiny-hf", at, elective=not fills_hole)
    told_itself = pauses.why_not_asked(Follower.objects.get(), fills_hole, at)
    told_others = unasked.why_not(unasked.Asked(SWARM, "tiny-hf", fills_hole, at), [peer_id("a")], Circumstances())
    assert counted == (told_itself is None) == (not told_others)


def offered_elective() -> Lease:
    seen(LOPSIDED)
    for name in "abcde":
        asks(name, Span(0, 2))
    return Lease.objects.open().exclude(urgency=Urgency.HOLE).get()


def not_again(lease: Lease, words: str, seconds: float) -> datetime:
    until = declined(lease, words, timedelta(seconds=seconds)).not_before
    assert until is not None
    return until


@pytest.mark.parametrize("served", [12, 30])
def test_an_arrival_that_declines_whatever_it_is_given_is_told_where_to_go_and_fills_no_table(served: int) -> None:
    seen(model(30, server("a", 0, served)))
    for words in ("failed: no", "busy-sessions", "too-soon"):
        answer = ask("new")
        assert answer.lease is not None
        leases.decline(Lease.objects.get(pk=answer.lease.id), words, timedelta(), now())
    answers = [ask("new") for _ in range(5)]
    assert {(answer.advice, answer.lease) for answer in answers} == {("move", None)} and answers[0].span is not None
    assert "it declined" in (answers[0].no_lease_because or "") and (answers[0].lease_after_s or 0) > 0
    assert Lease.objects.count() == 3
    pass_time(answers[0].lease_after_s or 0)
    assert ask("new").lease is not None


def test_of_a_declined_arrival_nothing_long_is_kept_and_of_a_declined_move_what_it_rested_on() -> None:
    holed()
    assert asks("d", Span(0, 12)).lease is not None
    declined(Lease.objects.get(), "pinned")
    assert Lease.objects.get().inputs, "its page says why it was asked"
    assert ask("new").lease is not None
    arrival = Lease.objects.get(peer_id=peer_id("new"))
    declined(arrival, "pinned")
    assert Lease.objects.get(pk=arrival.pk).inputs == {}
