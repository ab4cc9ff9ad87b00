"""Measured rates: few servers a round, in turn; kept; held against what is reported; shown beside it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from coordinator.known import standing_facts
from monitor.privacy import digest
from monitor.queries import latest_snapshot
from monitor.rates import evidence, rounds
from monitor.rates.choose import AGAIN_AFTER_S, AT_ONCE, IN_VAIN_AFTER_S, PATIENCE, Past, Subject, choose
from monitor.rates.facts import Rate
from monitor.rates.models import Probe, Witness
from monitor.store import store
from swarm.errors import Unreachable
from swarm.snapshot import PeerState, Snapshot
from swarm.wire.spans import Span
from tests.monitor.seeding import announced, failure, online, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


class Measurer:
    """Finds what it is told to."""

    def __init__(self, **rates: Rate | Exception) -> None:
        self.rates = {peer_id(name): rate for name, rate in rates.items()}
        self.asked: list[str] = []

    def measure(self, subject: Subject) -> Rate:
        self.asked.append(subject.peer_id)
        rate = self.rates.get(subject.peer_id, Rate(10.0))
        if isinstance(rate, Exception):
            raise rate
        return rate


@pytest.fixture(autouse=True)
def _free_rounds(settings: Any) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": f"rates{time.monotonic_ns()}"}}


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_round_is_short_and_asks_only_who_answered_and_whose_turn_it_is(many: int, measured: int) -> None:
    now = 1e9
    up = [online(f"s{n}", 0, 4) for n in range(many)]
    others = [unreachable("dead", 0, 4), announced("new", 0, 4, PeerState.JOINING), replace(online("x", 0, 4), visit=None)]
    past = {("tiny-hf", peer_id(f"s{n}")): Past(now - 60 * n, True) for n in range(measured)}
    chosen = choose(Snapshot("main", now, (model(4, *up, *others),)), past, now)
    assert len(chosen) <= AT_ONCE and {subject.peer_id for subject in chosen} <= {server.peer_id for server in up}
    waiting = {server.peer_id for server in up} - {peer for _, peer in past}
    assert len(waiting & {subject.peer_id for subject in chosen}) == min(AT_ONCE, len(waiting)), "new ones first"


def test_nobody_is_measured_again_within_the_hour_and_who_was_busy_sooner() -> None:
    snapshot = Snapshot("main", 0.0, (model(4, online("a", 0, 4)),))

    def chosen(ago_s: float, measured: bool) -> bool:
        return bool(choose(snapshot, {("tiny-hf", peer_id("a")): Past(1e9 - ago_s, measured)}, 1e9))

    assert not chosen(AGAIN_AFTER_S - 1, True) and chosen(AGAIN_AFTER_S, True)
    assert not chosen(IN_VAIN_AFTER_S - 1, False) and chosen(IN_VAIN_AFTER_S, False)


def test_a_round_stores_what_it_finds_and_the_next_one_asks_others() -> None:
    now = time.time()
    seed(model(4, *(online(f"s{n}", 0, 4, at=now) for n in range(6))), at=now)
    busy = Rate(None, "busy", 400)
    first, second, third = Measurer(s0=busy), Measurer(s0=busy), Measurer()
    assert [rounds.run("main", measurer) for measurer in (first, second, third)] == [4, 2, 0]
    assert len({*first.asked, *second.asked}) == 6
    assert Probe.objects.count() == 6
    assert Probe.objects.get(peer_id=peer_id("s0")).why == "busy"


def test_what_one_server_says_ends_no_round_and_it_is_not_first_again() -> None:
    told = Rate(None, "busy", 2**63)
    now = time.time()
    seed(model(4, *(online(f"s{n}", 0, 4, at=now) for n in range(6))), at=now)
    measurers = [Measurer(**{f"s{n}": told for n in range(2)}) for _ in range(3)]
    assert [rounds.run("main", measurer) for measurer in measurers] == [4, 2, 0]
    assert sum(not probe.tokens_per_s for probe in Probe.objects.all()) == 2 == Probe.objects.filter(why="not said").count()


def test_who_is_found_busy_again_and_again_is_measured_all_the_same() -> None:
    subject = Subject("tiny-hf", peer_id("a"), Span(0, 4))
    snapshot = Snapshot("main", 0.0, (model(4, online("a", 0, 4), online("b", 0, 4)),))
    started = 1e9

    def next_ones(at: float) -> dict[str, bool]:
        return {found.peer_id: found.even_if_busy for found in choose(snapshot, evidence.past("main"), at)}

    evidence.note_probe("main", subject, started - 7200, Rate(None, "busy"))
    evidence.note_probe("main", subject, started - 3600, Rate(20.0))
    for turn in range(PATIENCE):
        at = started + turn * IN_VAIN_AFTER_S
        assert next_ones(at)[peer_id("a")] is False, "once at work is no excuse"
        evidence.note_probe("main", subject, at, Rate(None, "busy"))
    assert next_ones(at + IN_VAIN_AFTER_S) == {peer_id("a"): True, peer_id("b"): False}
    evidence.note_probe("main", subject, at + IN_VAIN_AFTER_S, Rate(4.0))
    assert next_ones(at + IN_VAIN_AFTER_S + AGAIN_AFTER_S)[peer_id("a")] is False, "measured: it begins anew"


def test_a_monitor_that_cannot_see_measures_nobody_and_its_own_fault_is_nobodys_rate() -> None:
    seed(model(4, online("a", 0, 4)), at=time.time() - 900)
    assert rounds.run("main", Measurer()) == 0
    now = time.time()
    seed(model(4, online("a", 0, 4, at=now)), at=now)
    assert rounds.run("main", Measurer(a=Unreachable("p2pd does not answer"))) == 0
    assert not Probe.objects.exists()


def test_only_free_cache_on_the_same_blocks_tells_of_sessions() -> None:
    subject = Subject("tiny-hf", peer_id("a"), Span(0, 4))
    evidence.note_probe("main", subject, 1e9, Rate(10.0, "", 900))
    evidence.note_probe("main", subject, 1e9 + 1, Rate(None, "busy", 400))
    assert evidence.past("main") == {("tiny-hf", peer_id("a")): Past(1e9 + 1, False, 900, 1)}
    evidence.note_probe("main", replace(subject, span=Span(0, 2)), 1e9 + 2, Rate(10.0, "", 450))
    assert evidence.past("main") == {("tiny-hf", peer_id("a")): Past(1e9 + 2, True, 450)}


def test_both_figures_are_shown_and_the_planner_counts_on_the_believed_one(client: Client) -> None:
    now = time.time()
    servers = [online(name, 0, 4, 1000.0 if name == "liar" else 100.0, at=now) for name in ("liar", "b", "c", "d")]
    seed(model(4, *servers), at=now)
    for name in ("liar", "b", "c", "d"):
        evidence.note_probe("main", Subject("tiny-hf", peer_id(name), Span(0, 4)), now, Rate(96.0))
    found = {item["peer_id"]: item for item in client.get("/api/v1/models/tiny-hf").json()["servers"]}
    liar, honest = found[peer_id("liar")], found[peer_id("b")]
    assert (liar["throughput_tokens_per_second"], liar["believed_tokens_per_second"]) == (1000.0, 120.0)
    assert (liar["belief"]["basis"], liar["measured_tokens_per_second"]) == ("measured", 96.0)
    assert honest["believed_tokens_per_second"] == 100.0
    page = client.get("/m/tiny-hf").content.decode()
    assert "1,000 tok/s" in page and "counts as 120 tok/s: measured at 96.0 tokens/s" in page

    published = latest_snapshot("main")
    assert published is not None
    known = standing_facts(published, published.snapshot.models[0], datetime.now(UTC))
    assert known.rates[peer_id("liar")] == 120.0 and known.rates[peer_id("b")] == 100.0


def test_servers_of_one_network_are_known_to_the_planner_as_such_and_to_nobody_else(client: Client) -> None:
    now = time.time()
    here = [online(name, 0, 4, at=now) for name in "ab"]
    together = [replace(s, visit=replace(s.visit, network=digest("1.2.3.0/24"))) for s in here]  # type: ignore[type-var]
    seed(model(4, *together, online("c", 0, 4, at=now)), at=now)
    published = latest_snapshot("main")
    assert published is not None
    known = standing_facts(published, published.snapshot.models[0], datetime.now(UTC))
    assert known.operators[peer_id("a")] == known.operators[peer_id("b")] != known.operators[peer_id("c")]
    for address in ("/", "/m/tiny-hf", "/api/v1/models", "/api/v1/state", "/metrics"):
        assert digest("1.2.3.0/24") not in client.get(address).content.decode()
    assert digest("") == "" and digest("1.2.3.0/24") != digest("1.2.4.0/24")


def test_old_figures_count_for_nothing_and_are_forgotten() -> None:
    now = time.time()
    subject = Subject("tiny-hf", peer_id("a"), Span(0, 4))
    evidence.note_probe("main", subject, now - evidence.COUNTS_FOR.total_seconds() - 1, Rate(5.0))
    assert not evidence.seen_of("main", datetime.now(UTC)).evidence
    evidence.note_probe("main", subject, now - evidence.KEPT_FOR.total_seconds() - 1, Rate(5.0))
    evidence.forget(datetime.now(UTC))
    assert Probe.objects.count() == 2, "no crawl bears the clock out"
    store(failure(now - 3_700))
    evidence.forget(datetime.now(UTC))
    assert Probe.objects.count() == 1


@pytest.mark.parametrize("wrong", [{"tokens_per_s": None, "why": ""}, {"tokens_per_s": 0.0}, {"start": 4}])
def test_the_database_refuses_what_cannot_be(wrong: dict[str, Any]) -> None:
    good = {"swarm": "main", "prefix": "m", "peer_id": "p", "at": datetime.now(UTC), "start": 0, "end": 4, "tokens_per_s": 1.0}
    with pytest.raises(IntegrityError), transaction.atomic():
        Probe.objects.create(**{**good, **wrong})
    base = {"swarm": "main", "prefix": "m", "peer_id": "p", "witness": "w", "at": datetime.now(UTC)}
    with pytest.raises(IntegrityError), transaction.atomic():
        Witness.objects.create(**base, requests=1, failures=2)
