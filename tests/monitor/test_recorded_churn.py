"""A real swarm's comings and goings, as the monitor's own crawls saw them (tests/data/churn): the history counts what a recount
counts, and what it counts is what was done to the servers, as exactly as one who looks now and then can know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.history.minutes import IN_A_DAY, midnight
from monitor.history.models import ModelDay, PeerDay
from swarm.snapshot import PeerState
from tests.monitor.recorded import FILE, Recording, during, lives, recording, stretched, throughout, without
from tests.monitor.recounting import agree, compare, remembered
from tests.monitor.traces import Look, recount
from tests.swarms import peer_id

NAMES = "abcdefgh"
ENTRANCES = ("boot-1", "boot-2")
MIDNIGHT = 1_790_000_000 // 86_400 * 86_400 + 86_400
STRETCHES = (1, 5, 12)
"""A crawl every 5 s, as recorded; one in half a minute; one in a minute, so that minutes lie between two of them."""
FOUND_WITHIN_S = 20.0
"""A server that has come back announces itself within 10 s, and is dialled again by the crawl after that."""


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("stretch", [1, 12])
def test_of_all_of_it_is_counted_what_a_recount_counts_and_what_was_done_to_the_servers(stretch: int) -> None:
    churn = recording()
    looks, interval_s = stretched(churn.looks, stretch), stretch * churn.interval_s
    # Across midnight, when half of it is over.
    start = MIDNIGHT - stretch * (int(churn.crawls[-1].at) - churn.began) // 120 * 60
    counted = recount(looks, interval_s, start, churn.blocks)
    assert counted.broken and counted.thin and len(counted.watched) > len(counted.broken) + len(counted.thin)
    assert counted.up.keys() == {peer_id(name) for name in NAMES} == counted.down.keys()
    with remembered(looks, interval_s, start, churn.blocks) as (model, at):
        assert model is not None
        agree(counted, model, at, churn.blocks)
        alive, dead = judge(churn, minutes_of(model, start, stretch))
    assert alive >= 20 * stretch and dead >= 5 * stretch


@dataclass(frozen=True)
class Minute:
    """One of a server that was watched: from when to when, in seconds of the recording, and how it was counted."""

    name: str
    first: float
    last: float
    up: bool


def minutes_of(model: int, start: int, stretch: int) -> Iterator[Minute]:
    for name in NAMES:
        days = {day.day: day for day in PeerDay.objects.filter(model_id=model, peer__peer_id=peer_id(name))}
        since = min(_second(day, found.first_minute) for day, found in days.items())
        for watched in ModelDay.objects.filter(model_id=model):
            found = days.get(watched.day)
            for minute in range(IN_A_DAY):
                unknown = found is not None and found.unknown is not None and minute in found.unknown
                second = _second(watched.day, minute)
                if minute in watched.watched and second >= since and not unknown:
                    first = recording().began + (second - start) / stretch
                    yield Minute(name, first, first + 60 / stretch, found is not None and minute in found.up)


def _second(day: date, minute: int) -> float:
    return midnight(day).timestamp() + 60 * minute


def judge(churn: Recording, minutes: Iterator[Minute]) -> tuple[int, int]:
    """How many minutes a server was there all along, and how many it was away.

    As exactly as can be: a minute is what was seen in it, or in the crawl before where it lies between two (they are 1.5
    intervals apart at most), and what was seen is what a visit found, the last of which ends `visits_s` after the crawl is
    dated. Dates are cut off to seconds, which is one more. A server counts as there while it can be found: through a bootstrap
    peer that was there all along as well."""
    lived = lives(churn.events, churn.crawls[-1].ended)
    before_s, after_s = 1.5 * churn.interval_s + 1, churn.visits_s + 1
    alive = dead = 0
    for minute in minutes:
        life = lived[minute.name]
        first, last = minute.first - before_s, minute.last + after_s
        if not during(life.able, first, last):
            dead += 1
            assert not minute.up, f"counted up though nobody was there: {minute}"
        found = any(throughout(lived[boot].serving, first - FOUND_WITHIN_S, last) for boot in ENTRANCES)
        if found and throughout(life.serving, first - FOUND_WITHIN_S, last):
            alive += 1
            assert minute.up, f"counted down though it was there all along: {minute}"
    return alive, dead


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[Look], int, int]:
    """A part of the recording, slower, with crawls left out, by a clock that is set once at most; the factor, and the start."""
    looks = recording().looks
    first = draw(st.integers(0, len(looks) - 5))
    stretch = draw(st.sampled_from(STRETCHES))
    part = stretched(looks[first : first + draw(st.integers(1, 30))], stretch)
    part = without(part, draw(st.frozensets(st.integers(0, len(part) - 1), max_size=len(part) // 2)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(part) - 1))
        step_s = draw(st.sampled_from([-3, -30, -61, -130, -700, -4_000, 45, 700]))
        part[at] = replace(part[at], after_s=part[at].after_s + step_s)
    return part, stretch, MIDNIGHT - draw(st.integers(0, 900))


@pytest.mark.slow
@pytest.mark.django_db
@settings(max_examples=25, deadline=None)
@given(parts())
def test_any_part_of_it_is_counted_as_a_recount_counts_it(part: tuple[list[Look], int, int]) -> None:
    looks, stretch, start = part
    compare(looks, stretch * recording().interval_s, start, recording().blocks)


def test_the_recording_holds_what_it_is_for_and_tells_no_addresses() -> None:
    churn = recording()
    looks = churn.looks
    assert sum(look.servers is None for look in looks) >= 5 and sum(bool(look.unread) for look in looks) >= 5
    states = {state for look in looks for *_, state in (look.servers or {}).values()}
    assert states >= {PeerState.ONLINE, PeerState.JOINING, PeerState.LEAVING, PeerState.UNREACHABLE}
    assert {event.what for event in churn.events} >= {"kill", "stop", "freeze", "thaw", "start"}
    assert any(event.what == "kill" and event.who in ENTRANCES for event in churn.events)
    spans = {
        (name, *span) for look in looks for name, (*span, state) in (look.servers or {}).items() if state is PeerState.ONLINE
    }
    assert len(spans) >= 2 * len(NAMES), "servers move"
    text = FILE.read_text("ascii")
    assert len(text) < 300_000
    assert not re.search(r"\d+\.\d+\.\d+\.\d+|/ip[46]|/p2p|/(work|home|tmp|root|usr)\b|12D3Koo|\bQm\w{10}", text)
