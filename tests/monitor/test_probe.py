"""Who is visited, in which order, and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from monitor.probe import VISITS_AT_ONCE, Target, targets, visit_all
from swarm.snapshot import Entry, Outcome, PeerState, Reading, Server, Visit
from swarm.wire.keys import block_uid
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.swarms import peer_id, server

AT = 1_000_000.0
SIX = {"m": ModelRecord(6, None)}


def records(name: str, span: Span, state: ServerState = ServerState.ONLINE) -> Reading:
    record = ServerRecord(state, 5.0, span).to_wire()
    return Reading({block_uid("m", block): [Entry(peer_id(name), record, AT + 60)] for block in span})


def seen(name: str, start: int, end: int, outcome: Outcome = Outcome.ANSWERED, at: float = AT - 30) -> Server:
    state = PeerState.ONLINE if outcome is Outcome.ANSWERED else PeerState.UNREACHABLE
    return replace(server(name, start, end, state), visit=Visit(peer_id(name), at, outcome))


def spans_of(reading: Reading, *before: Server) -> tuple[Span, ...]:
    chosen = targets(SIX, {"m": reading}, {"m": {s.peer_id: s for s in before}}, AT)
    return chosen[0].spans if chosen else ()


def test_a_server_that_stands_in_the_dht_is_asked_for_its_span_whatever_state_it_is_said_to_be_in() -> None:
    for state in ServerState:
        assert spans_of(records("a", Span(0, 3), state)) == (Span(0, 3),)


def test_a_server_seen_before_is_asked_whatever_its_records_say_now() -> None:
    before = seen("a", 0, 3)
    for state in (ServerState.OFFLINE, ServerState.JOINING):
        assert spans_of(records("a", Span(0, 3), state), before) == (Span(0, 3),)
        assert spans_of(Reading({}), replace(before, state=PeerState(state.name.lower().replace("offline", "leaving"))))
    assert spans_of(records("a", Span(2, 6)), before) == (Span(0, 3), Span(2, 6)), "where it was, then what it claims"
    assert spans_of(Reading({}), before) == (Span(0, 3),), "no record at all"
    assert spans_of(Reading({}), replace(before, span=Span(4, 9))) == (), "the model has become smaller"


def target(name: str, outcome: Outcome | None, at: float = AT) -> Target:
    before = Visit(peer_id(name), at, outcome) if outcome else None
    rank = 1 if before is None else 0 if before.answered else 2
    return Target("m", peer_id(name), (Span(0, 1),), rank, before)


def test_the_living_come_first_strangers_next_and_the_silent_last_in_turns() -> None:
    known = [seen("old", 0, 1, Outcome.TIMEOUT, AT - 90), seen("new", 0, 1, Outcome.REFUSED, AT - 30), seen("well", 0, 1)]
    loader = records("loader", Span(0, 1), ServerState.JOINING)
    entries = [*records("stranger", Span(0, 1)).entries["m.0"], *loader.entries["m.0"]]
    chosen = targets(SIX, {"m": Reading({"m.0": entries})}, {"m": {s.peer_id: s for s in known}}, AT)
    assert [t.peer_id for t in chosen] == [peer_id(name) for name in ("well", "stranger", "old", "new", "loader")]


def counted_waits(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one for each wait that nobody's answer ended."""
    waits: list[object] = []
    wait = asyncio.wait

    async def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        done, pending = await wait(*args, **kwargs)
        if not done:
            waits.append(pending)
        return done, pending

    monkeypatch.setattr("monitor.probe.asyncio.wait", counted)
    return waits


async def test_a_thousand_dead_peers_cost_one_wait_and_keep_no_living_one_from_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never = asyncio.Event()
    at_once = most = 0

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            if who in dead:
                await never.wait()
            await asyncio.sleep(0)
            return Visit(who, AT, Outcome.ANSWERED)
        finally:
            at_once -= 1

    living = [target(f"a{n}", Outcome.ANSWERED) for n in range(300)]
    silent = [target(f"d{n}", Outcome.TIMEOUT, AT - n) for n in range(1_000)]
    dead = {t.peer_id for t in silent}
    waits = counted_waits(monkeypatch)
    visits = (await visit_all(ask, [*living, *silent], silence_s=1.0))["m"]
    assert len(waits) == 1, "one silence ends it"
    assert most <= VISITS_AT_ONCE
    assert all(visits[t.peer_id].answered for t in living)
    assert all(visits[t.peer_id] == t.before for t in silent), "what was known of them stays, with its time"


async def test_a_crowd_that_answers_slowly_uses_up_its_own_time_and_not_the_crawl_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, so that all of them would take fifty times the limit."""
    monkeypatch.setattr("monitor.probe.VISITS_AT_ONCE", 1)

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        await asyncio.sleep(0.05)
        return Visit(who, AT, Outcome.ANSWERED)

    crowd = [target(f"s{n}", Outcome.ANSWERED) for n in range(1_000)]
    visits = (await visit_all(ask, crowd, silence_s=60.0, limit_s=1.0))["m"]
    assert 0 < len(visits) < 100 and crowd[0].peer_id in visits


def test_of_those_that_answered_the_fastest_are_asked_first() -> None:
    before = {peer_id(name): answered_in(name, seconds) for name, seconds in (("slow", 4.9), ("quick", 0.05))}
    chosen = targets({"m": ModelRecord(4, None)}, {"m": Reading({})}, {"m": before}, AT)
    assert [t.peer_id for t in chosen] == [peer_id("quick"), peer_id("slow")]


def answered_in(name: str, seconds: float) -> Server:
    seen = server(name, 0, 2, PeerState.ONLINE)
    return replace(seen, visit=Visit(seen.peer_id, AT, Outcome.ANSWERED, round_trip_s=seconds))


async def test_a_stranger_that_nobody_had_time_for_has_no_visit() -> None:
    async def ask(who: str, prefix: str, span: Span) -> Visit:
        await asyncio.Event().wait()
        raise AssertionError

    assert await visit_all(ask, [target("x", None)], silence_s=0.01) == {"m": {}}


CLAIM, OLD = Span(2, 6), Span(0, 3)


async def visited(answers: dict[Span, list[Outcome]], before: Outcome | None = None) -> tuple[Visit, list[Span]]:
    """A server that was at OLD and claims CLAIM, and says this for each time that it is asked; and what it was asked for."""
    asked: list[Span] = []

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        asked.append(span)
        return Visit(who, AT, answers[span].pop(0), span=span)

    known = Visit(peer_id("a"), AT, before) if before else None
    both = Target("m", peer_id("a"), (OLD, CLAIM), 0, known, CLAIM)
    return (await visit_all(ask, [both]))["m"][peer_id("a")], asked


YES, NO, SILENT, ABSENT = Outcome.ANSWERED, Outcome.NOT_HELD, Outcome.TIMEOUT, Outcome.PROTOCOL_ABSENT


async def test_where_it_was_and_what_it_claims_are_both_asked_for_and_count_where_it_answers() -> None:
    for old, claim, span in ((YES, NO, OLD), (NO, YES, CLAIM), (YES, YES, Span(0, 6))):
        visit, asked = await visited({OLD: [old], CLAIM: [claim]})
        assert visit.answered and visit.span == span and asked == [OLD, CLAIM]


async def test_who_denies_both_is_judged_by_its_claim_and_who_is_silent_by_where_it_was() -> None:
    assert await visited({OLD: [NO], CLAIM: [NO]}) == (Visit(peer_id("a"), AT, NO, span=CLAIM), [OLD, CLAIM])
    for outcome in (SILENT, ABSENT):
        assert await visited({OLD: [outcome]}) == (Visit(peer_id("a"), AT, outcome, span=OLD), [OLD])


async def test_who_answered_last_time_and_is_silent_now_is_asked_once_more_in_the_end() -> None:
    visit, asked = await visited({OLD: [SILENT, YES], CLAIM: [NO]}, before=YES)
    assert visit.span == OLD and visit.answered and asked == [OLD, OLD, CLAIM]
    visit, asked = await visited({OLD: [SILENT, SILENT]}, before=YES)
    assert visit.outcome is SILENT and asked == [OLD, OLD]
    visit, asked = await visited({OLD: [NO, NO], CLAIM: [SILENT, YES]}, before=YES)
    assert visit.span == CLAIM and visit.answered
    visit, asked = await visited({OLD: [YES, SILENT], CLAIM: [SILENT]}, before=YES)
    assert visit.span == OLD and visit.answered, "what it has said stands"


@pytest.mark.parametrize("outcome", [NO, ABSENT])
async def test_what_a_server_says_itself_is_not_asked_twice(outcome: Outcome) -> None:
    _, asked = await visited({OLD: [outcome], CLAIM: [outcome]}, before=YES)
    assert asked in ([OLD, CLAIM], [OLD])
    _, asked = await visited({OLD: [SILENT]}, before=SILENT)
    assert asked == [OLD], "who was silent last time is asked once"


async def test_the_second_try_comes_when_everyone_else_has_been_asked() -> None:
    asked: list[str] = []

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        asked.append(who)
        lost = who == peer_id("a") and asked.count(who) == 1
        return Visit(who, AT, SILENT if lost else YES, span=span)

    known = [target(name, YES) for name in ("a", *(f"s{n}" for n in range(200)))]
    visits = (await visit_all(ask, known))["m"]
    assert asked[-1] == peer_id("a") and len(asked) == 202
    assert all(visit.answered for visit in visits.values())


async def test_a_second_try_waits_until_libp2p_dials_again_where_it_had_given_up_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = {"refusing": Outcome.REFUSED, "silent": SILENT}
    asked: list[str] = []
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def recorded(delay: float) -> None:
        pauses.append(delay)
        await sleep(0)

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        name = next(name for name in first if peer_id(name) == who)
        asked.append(name)
        return Visit(who, AT, first[name] if asked.count(name) == 1 else YES, span=span)

    monkeypatch.setattr("monitor.probe.asyncio.sleep", recorded)
    visits = (await visit_all(ask, [target(name, YES) for name in first], refused_for_s=3_600))["m"]
    assert [pause > 3_500 for pause in pauses] == [False, False, False, True], "only who refused, and only the second time"
    assert asked == ["refusing", "silent", "silent", "refusing"] and all(visit.answered for visit in visits.values())


async def test_addresses_that_libp2p_names_only_the_second_time_are_kept_with_the_first_outcome() -> None:
    tried = ("/ip4/192.0.2.1/tcp/31330",)
    answers = [Visit(peer_id("a"), AT, SILENT), Visit(peer_id("a"), AT, Outcome.REFUSED, addresses=tried, via="direct")]

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        return answers.pop(0)

    visit = (await visit_all(ask, [target("a", YES)]))["m"][peer_id("a")]
    assert (visit.outcome, visit.addresses, visit.via) == (SILENT, tried, "direct")


async def test_any_number_of_servers_that_die_at_once_cost_two_waits_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(who: str, prefix: str, span: Span) -> Visit:
        await asyncio.Event().wait()
        raise AssertionError

    waits = counted_waits(monkeypatch)
    known = [target(f"s{n}", YES) for n in range(1_000)]
    assert await visit_all(ask, known, silence_s=0.02, silence_again_s=0.02) == {"m": {}}
    assert len(waits) == 2


async def test_what_a_server_said_before_it_fell_silent_is_not_lost() -> None:
    async def ask(who: str, prefix: str, span: Span) -> Visit:
        if span == CLAIM:
            await asyncio.Event().wait()
        return Visit(who, AT, YES, span=span)

    both = Target("m", peer_id("a"), (OLD, CLAIM), 1, None, CLAIM)
    visit = (await visit_all(ask, [both], silence_s=0.5))["m"][peer_id("a")]
    assert visit.answered and visit.span == OLD
