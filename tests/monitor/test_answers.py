"""What servers answer to small forward passes: compared, shown, counted; and what follows from it, which is little."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from coordinator.known import cautious, standing_facts
from monitor import queries
from monitor.history.models import Incident
from monitor.rates import evidence, findings, rounds
from monitor.rates.choose import AGAIN_AFTER_S, Subject
from monitor.rates.facts import Rate
from monitor.rates.models import AnswerFinding, Probe
from monitor.rates.questions import HIDDEN, ROUND_S, Round, asked_alike, holders_of, number_of
from monitor.store import store
from swarm.answers.judging import Standing
from swarm.answers.prints import NUMBERS, Print
from swarm.placement.holders import planned, safe_donors
from swarm.snapshot import Model, PeerState, Server
from swarm.throughput import DOUBTED_SHARE, Basis
from swarm.wire.spans import Span
from tests.monitor.seeding import SWARM, online, report, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

WHOLE = Span(0, 4)


def kept(kind: str) -> Print:
    numbers = np.random.default_rng([ord(letter) for letter in kind]).standard_normal(2 * NUMBERS)
    return Print(8.0, tuple(map(float, numbers)))


def at_home(name: str, start: int = 0, end: int = 4, throughput: float = 100.0, at: float | None = None) -> Server:
    """A server in a network of its own."""
    server = online(name, start, end, throughput, at=time.time() if at is None else at)
    assert server.visit is not None
    return replace(server, visit=replace(server.visit, network=f"net {name}", span=server.span))


def note(name: str, kind: str, number: int, rate: float = 96.0, at: float | None = None, span: Span = WHOLE) -> Probe:
    """One probe of a server that answers as `kind` does: `zeros` are wrong by themselves."""
    subject = Subject("tiny-hf", peer_id(name), span, block=2, round=number, network=f"net {name}", precision="none")
    found = Rate(rate, block=kept(kind), whole=kept(kind))
    if kind == "zeros":
        found = Rate(None, "its answer is no forward pass", wrong="is all zeros")
    return evidence.note_probe(SWARM, subject, time.time() if at is None else at, found)


def asked(kinds: Mapping[str, str], numbers: range = range(2)) -> None:
    for number in numbers:
        for name, kind in kinds.items():
            note(name, kind, number)
    findings.refresh(SWARM, datetime.now(UTC))


LIED = {"a": "right", "b": "right", "c": "right", "liar": "nonsense"}


def seeded(*names: str) -> None:
    now = time.time()
    seed(model(4, *(at_home(name, throughput=1000.0 if name == "liar" else 100.0, at=now) for name in names)), at=now)


def document(client: Client, name: str = "liar") -> dict[str, Any]:
    servers = client.get("/api/v1/models/tiny-hf").json()["servers"]
    found: dict[str, Any] = next(item for item in servers if item["peer_id"] == peer_id(name))
    return found


def test_a_server_that_answers_quickly_and_differently_is_shown_so_and_its_speed_counts_for_nothing(client: Client) -> None:
    seeded(*LIED)
    asked(LIED)
    liar, honest = document(client), document(client, "a")
    words = "its answer for block 2 differs from that of 3 others who agree with each other"
    assert (liar["state"], liar["conflict"]) == ("online", words)
    assert liar["answers"] == {"standing": "differs", "blocks": [2, 3], "against": 3, "words": words}
    assert (liar["belief"]["basis"], liar["measured_tokens_per_second"]) == (Basis.ANSWERS.value, None)
    assert liar["believed_tokens_per_second"] == DOUBTED_SHARE * 96.0
    assert honest["answers"]["standing"] == "agrees" and honest["conflict"] is None
    assert honest["believed_tokens_per_second"] == 100.0
    page = client.get("/m/tiny-hf").content.decode()
    assert f"conflict: {words}" in page and "no more than half a usual server" in page
    assert words in client.get(f"/p/{peer_id('liar')}").content.decode()
    metrics = client.get("/metrics").content.decode()
    assert (
        'swarm_answers{model="tiny-hf",standing="differs"} 1.0' in metrics and 'swarm_conflicts{model="tiny-hf"} 1.0' in metrics
    )


def test_who_differs_still_covers_its_blocks_since_a_crowd_can_frame_anybody(client: Client) -> None:
    seeded("s1", "s2", "honest")
    asked({"s1": "crowd", "s2": "crowd", "honest": "right"})
    assert document(client, "honest")["answers"]["standing"] == "differs"
    assert client.get("/api/v1/models/tiny-hf").json()["min_redundancy"] == 3


def test_where_no_side_is_larger_nobody_is_blamed_and_the_model_says_so(client: Client) -> None:
    seeded("a", "b")
    asked({"a": "one", "b": "other"})
    told = client.get("/api/v1/models/tiny-hf").json()
    assert told["conflict"] == "servers give different answers for block 2, and it cannot be told which of them are right"
    assert {s["answers"]["standing"] for s in told["servers"]} == {"disputed"}
    assert all(s["conflict"] is None and s["measured_tokens_per_second"] == 96.0 for s in told["servers"])


def test_once_is_not_enough_and_three_good_rounds_clear(client: Client) -> None:
    asked(LIED, range(1))
    seeded(*LIED)
    assert document(client)["answers"]["standing"] == "disputed"
    asked(LIED, range(1, 2))
    seeded(*LIED)
    assert document(client)["answers"]["standing"] == "differs"
    asked(dict.fromkeys(LIED, "right"), range(2, 5))
    seeded(*LIED)
    assert document(client)["answers"]["standing"] == "agrees"


def test_two_wrong_answers_in_a_row_and_its_blocks_do_not_count_until_a_right_one(client: Client) -> None:
    asked({"liar": "zeros"}, range(1))
    seeded("a", "liar")
    once = document(client)
    assert (once["state"], once["conflict"], once["answers"]["standing"]) == ("online", "its answer is all zeros", "wrong")
    assert once["believed_tokens_per_second"] == DOUBTED_SHARE * 1000.0, "of two servers nobody knows what is usual"
    asked({"liar": "zeros"}, range(1))
    seeded("a", "liar")
    twice = document(client)
    assert (twice["state"], twice["reachability"]["outcome"]) == ("unreachable", "wrong answer")
    assert twice["conflict"] == "its answer is all zeros, 2 times in a row"
    assert client.get("/api/v1/models/tiny-hf").json()["min_redundancy"] == 1
    page = client.get(f"/p/{peer_id('liar')}").content.decode()
    assert "Not counted" in page and "look at its GPU" in page and "does not answer us" not in page
    asked({"liar": "right"}, range(1, 2))
    seeded("a", "liar")
    assert (document(client)["state"], document(client)["conflict"]) == ("online", None)


def test_a_hole_of_wrong_answers_is_an_incident_and_says_how_it_came() -> None:
    now = time.time()

    def crawl(after_s: float) -> None:
        store(report(now + after_s, model(4, at_home("liar", at=now + after_s))))

    crawl(-60)
    note("liar", "zeros", 1)
    note("liar", "zeros", 1)
    findings.refresh(SWARM, datetime.now(UTC))
    crawl(-30)
    crawl(0)
    hole = Incident.objects.get(kind="hole")
    assert [(entry["peer_id"], entry["how"]) for entry in hole.left] == [(peer_id("liar"), "gave wrong answers")]


def test_a_server_that_moved_is_not_held_to_the_blocks_that_it_left(client: Client) -> None:
    now = time.time()
    for _ in range(2):
        note("liar", "zeros", 1, span=Span(0, 2))
    findings.refresh(SWARM, datetime.now(UTC))
    seed(model(4, at_home("liar", 2, 4, at=now)), at=now)
    assert document(client)["state"] == "online" and document(client)["conflict"]


def test_who_gave_wrong_answers_is_asked_again_or_would_never_be_seen_to_be_right() -> None:
    now = time.time()
    seed(model(4, at_home("liar", at=now)), at=now)
    for _ in range(2):
        note("liar", "zeros", 1, at=now - AGAIN_AFTER_S)
    findings.refresh(SWARM, datetime.now(UTC))
    published = queries.latest_snapshot(SWARM)
    assert published is not None and published.snapshot.models[0].servers[0].state is PeerState.UNREACHABLE

    class Right:
        def measure(self, subject: Subject) -> Rate:
            return Rate(10.0, block=kept("right"))

    assert rounds.run(SWARM, Right()) == 1
    published = queries.latest_snapshot(SWARM)
    assert published is not None and published.snapshot.models[0].servers[0].state is PeerState.ONLINE


def test_a_round_asks_everyone_alike_and_judges_at_its_end() -> None:
    now = time.time()
    seed(model(4, *(at_home(name, at=now) for name in LIED)), at=now)
    subjects: list[Subject] = []

    class Answers:
        def measure(self, subject: Subject) -> Rate:
            subjects.append(subject)
            return Rate(10.0, block=kept("x" if subject.peer_id == peer_id("liar") else "right"))

    assert rounds.run(SWARM, Answers()) == 4
    assert len({(s.block, s.seed, s.round) for s in subjects}) == 1 and subjects[0].seed
    assert {row.standing for row in AnswerFinding.objects.all()} == {"agrees", "disputed"}
    assert Probe.objects.filter(round=subjects[0].round, block=subjects[0].block).count() == 4


def test_a_doubted_server_is_not_the_one_that_lets_another_leave() -> None:
    seeded("donor", "liar")
    published = queries.latest_snapshot(SWARM)
    assert published is not None

    def donors(of: Model) -> set[str]:
        return {holder.peer_id for holder in safe_donors(of, planned(of, ()), (), None)}

    assert donors(published.snapshot.models[0]) == {peer_id("donor"), peer_id("liar")}
    note("liar", "zeros", 1)
    findings.refresh(SWARM, datetime.now(UTC))
    published = queries.latest_snapshot(SWARM)
    assert published is not None
    seen = published.snapshot.models[0]
    assert not donors(cautious(seen, published))
    rates = standing_facts(published, seen, datetime.now(UTC)).rates
    assert rates[peer_id("liar")] == DOUBTED_SHARE * 1000.0 and rates[peer_id("donor")] == 100.0


def test_findings_end_with_the_probes_that_they_rest_on() -> None:
    asked(LIED)
    assert AnswerFinding.objects.get(peer_id=peer_id("liar")).standing == Standing.DIFFERS
    later = datetime.now(UTC) + evidence.COUNTS_FOR + timedelta(seconds=1)
    assert not evidence.findings_of(SWARM, later), "also where no round has run since"
    findings.refresh(SWARM, later)
    assert not AnswerFinding.objects.exists()


def test_without_comparison_nothing_changes(client: Client) -> None:
    """Networks that are not known are one: nobody behind a relay can be a crowd."""
    seeded("a", "b", "c")
    for name, kind in {"a": "x", "b": "right", "c": "right"}.items():
        Probe.objects.filter(pk=note(name, kind, 1).pk).update(network="")
    findings.refresh(SWARM, datetime.now(UTC))
    assert {document(client, name)["answers"]["standing"] for name in "abc"} == {"alone"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"standing": "x"},
        {"start": 3, "end": 3},
        {"standing": "wrong"},
        {"wrong": "is all zeros"},
        {"standing": "agrees", "times": 2},
    ],
)
def test_the_database_refuses_what_cannot_be(wrong: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    good = {"swarm": "main", "prefix": "m", "peer_id": "p", "at": now, "standing": "agrees", "round": 1, "start": 0, "end": 4}
    with pytest.raises(IntegrityError), transaction.atomic():
        AnswerFinding.objects.create(**{**good, **wrong})
    AnswerFinding.objects.create(**good)
    with pytest.raises(IntegrityError), transaction.atomic():
        AnswerFinding.objects.create(**good)
    probe = {"swarm": "main", "prefix": "m", "peer_id": "p", "at": datetime.now(UTC), "start": 0, "end": 4}
    with pytest.raises(IntegrityError), transaction.atomic():
        Probe.objects.create(**probe, tokens_per_s=1.0, wrong="is all zeros")


SECRET = b"secret"


@given(st.integers(0, 3), st.integers(1, 6), st.integers(0, 9))
def test_a_block_is_one_of_the_server_s_own(start: int, length: int, number: int) -> None:
    server = at_home("a", start, start + length)
    block = asked_alike("m", server, holders_of(model(12, server)), Round(number, SECRET))
    assert block in server.span


def test_servers_that_share_a_block_are_asked_for_it() -> None:
    servers = [at_home("a", 0, 6), at_home("b", 4, 9), at_home("c", 5, 12)]
    held = holders_of(model(12, *servers))
    round_ = Round(1, SECRET)
    for server in servers:
        block = asked_alike("m", server, held, round_)
        assert block == 5, "the only one that all hold"
        round_ = round_.with_asked("m", block, f"net {server.record.public_name}")


def test_where_many_blocks_are_shared_it_is_another_one_each_round_and_nobody_foresees_which() -> None:
    servers = [at_home(name, 0, 12) for name in "abc"]
    held = holders_of(model(12, *servers))

    def blocks(secret: bytes) -> list[int]:
        return [asked_alike("m", servers[0], held, Round(number, secret)) for number in range(20)]

    assert len(set(blocks(SECRET))) > 5 and blocks(SECRET) != blocks(b"other") and blocks(SECRET) == blocks(SECRET)
    assert Round(1, SECRET).seed("m") != Round(2, SECRET).seed("m") != Round(2, b"other").seed("m")


def test_those_who_hide_their_network_and_one_s_own_make_no_block_better() -> None:
    alone = at_home("a", 0, 2)
    hidden = [online(f"h{n}", 1, 2) for n in range(5)]
    mates = [replace(at_home(f"m{n}", 1, 2), visit=alone.visit) for n in range(5)]
    friend = at_home("friend", 0, 1)
    held = holders_of(model(2, alone, *mates, friend))
    assert asked_alike("m", alone, held, Round(1, SECRET)) == 0
    assert holders_of(model(2, *hidden))[1] == {HIDDEN}


def test_a_round_is_as_long_as_between_two_probes_of_a_server() -> None:
    assert ROUND_S == AGAIN_AFTER_S
    assert number_of(7.0 * ROUND_S) == 7 and number_of(8.0 * ROUND_S - 0.1) == 7
