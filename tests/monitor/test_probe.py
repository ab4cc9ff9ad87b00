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


def test_a_server_that_says_to_be_online_is_asked_for_its_span() -> None:
    assert spans_of(records("a", Span(0, 3))) == (Span(0, 3),)
    assert spans_of(records("a", Span(0, 3), ServerState.JOINING)) == ()
    assert spans_of(records("a", Span(0, 3), ServerState.OFFLINE)) == ()


def test_a_server_seen_before_is_asked_whatever_its_records_say_now() -> None:
    before = seen("a", 0, 3)
    for state in (ServerState.OFFLINE, ServerState.JOINING):
        assert spans_of(records("a", Span(0, 3), state), before) == (Span(0, 3),)
    assert spans_of(records("a", Span(2, 6)), before) == (Span(2, 6), Span(0, 3)), "the claim first, then where it was"
    assert spans_of(Reading({}), before) == (Span(0, 3),), "no record at all"
    assert spans_of(Reading({}), replace(before, span=Span(4, 9))) == (), "the model has become smaller"


def target(name: str, outcome: Outcome | None, at: float = AT) -> Target:
    before = Visit(peer_id(name), at, outcome) if outcome else None
    rank = 1 if before is None else 0 if before.answered else 2
    return Target("m", peer_id(name), (Span(0, 1),), rank, before)


def test_the_living_come_first_strangers_next_and_the_silent_last_in_turns() -> None:
    known = [seen("old", 0, 1, Outcome.TIMEOUT, AT - 90), seen("new", 0, 1, Outcome.REFUSED, AT - 30), seen("well", 0, 1)]
    chosen = targets(SIX, {"m": records("stranger", Span(0, 1))}, {"m": {s.peer_id: s for s in known}}, AT)
    assert [t.peer_id for t in chosen] == [peer_id(name) for name in ("well", "stranger", "old", "new")]


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
    waits = 0
    wait = asyncio.wait

    async def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        nonlocal waits
        done, pending = await wait(*args, **kwargs)
        waits += not done
        return done, pending

    monkeypatch.setattr("monitor.probe.asyncio.wait", counted)
    visits = (await visit_all(ask, [*living, *silent], silence_s=0.05))["m"]
    assert waits == 1, "one silence ends it"
    assert most <= VISITS_AT_ONCE
    assert all(visits[t.peer_id].answered for t in living)
    assert all(visits[t.peer_id] == t.before for t in silent), "what was known of them stays, with its time"


async def test_a_crowd_that_answers_slowly_uses_up_its_own_time_and_not_the_crawl_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, so that all of them would take a hundred times the limit."""
    monkeypatch.setattr("monitor.probe.VISITS_AT_ONCE", 1)

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        await asyncio.sleep(0.005)
        return Visit(who, AT, Outcome.ANSWERED)

    crowd = [target(f"s{n}", Outcome.ANSWERED) for n in range(1_000)]
    visits = (await visit_all(ask, crowd, silence_s=5.0, limit_s=0.05))["m"]
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


async def test_a_denied_claim_is_followed_by_the_span_that_was_known() -> None:
    asked: list[Span] = []

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        asked.append(span)
        held = span == Span(0, 3)
        return Visit(who, AT, Outcome.ANSWERED if held else Outcome.NOT_HELD, span=span)

    two = Target("m", peer_id("a"), (Span(2, 6), Span(0, 3)), 0, None)
    visit = (await visit_all(ask, [two]))["m"][peer_id("a")]
    assert visit.answered and visit.span == Span(0, 3) and asked == [Span(2, 6), Span(0, 3)]


@pytest.mark.parametrize(("outcome", "times"), [(Outcome.NOT_HELD, 2), (Outcome.TIMEOUT, 1)])
async def test_who_denies_both_is_judged_by_its_claim_and_who_is_silent_is_asked_once(outcome: Outcome, times: int) -> None:
    asked: list[Span] = []

    async def ask(who: str, prefix: str, span: Span) -> Visit:
        asked.append(span)
        return Visit(who, AT, outcome, span=span)

    both = Target("m", peer_id("a"), (Span(2, 6), Span(0, 3)), 0, None)
    visit = (await visit_all(ask, [both]))["m"][peer_id("a")]
    assert visit.span == Span(2, 6) and len(asked) == times
