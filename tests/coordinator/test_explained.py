"""Each hint explained: why this server and not another, with what was counted on when it was decided."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from coordinator import followers
from coordinator.desk.models import Kind as RulingKind
from coordinator.models import Follower, Lease, Phase
from monitor.hiding.models import Hidden, Kind
from monitor.rates import evidence
from monitor.rates.choose import Subject
from monitor.rates.facts import Rate
from swarm.snapshot import Model, Outcome, Visit
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import Span
from tests.coordinator.desk.people import decided
from tests.coordinator.seeding import SWARM, question, seen
from tests.coordinator.test_hints import HOLED, ask, now
from tests.coordinator.test_people import page, read
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

DAY_S = 86_400.0
LOPSIDED = model(4, *(server(name, 0, 2) for name in "abcdefgh"), server("x", 2, 4), server("y", 2, 4))
LONELY = model(4, *(server(name, 0, 2) for name in "abcdefgh"), server("x", 2, 4))


def settled(swarm: Model, *newcomers: str) -> None:
    """All but the newcomers have been there for a day, and all ask for hints."""
    late = {peer_id(name) for name in newcomers}
    seen(replace(swarm, servers=tuple(s for s in swarm.servers if s.peer_id not in late)), ago_s=DAY_S)
    seen(swarm, ago_s=5)
    for s in swarm.servers:
        followers.note_heartbeat(SWARM, question(str(s.record.public_name), len(s.span), s.span), now() - timedelta(seconds=20))


def hinted(name: str, size: int = 2) -> Lease:
    answer = ask(name, Span(0, 2), size)
    assert answer.lease is not None, answer.reason
    return Lease.objects.get(pk=answer.lease.id)


def asked_first(swarm: Model) -> str:
    """The planner's choice does not depend on who asks: it names one server."""
    for s in sorted(swarm.servers, key=lambda server: server.peer_id):
        name = str(s.record.public_name)
        if s.span == Span(0, 2) and ask(name, s.span, 2).lease is not None:
            Lease.objects.all().delete()
            return name
    raise AssertionError("nobody is asked to move")


def objections(lease: Lease) -> dict[str, Any]:
    return {item["peer_id"]: item["objection"] for item in lease.inputs["candidates"]}


@pytest.mark.parametrize(("swarm", "code"), [(LOPSIDED, ReasonCode.BALANCE), (LONELY, ReasonCode.REDUNDANCY)])
def test_who_could_have_moved_as_well_is_not_said_to_be_needed_no_more(client: Client, swarm: Model, code: ReasonCode) -> None:
    settled(swarm)
    lease = hinted(asked_first(swarm))
    assert lease.reason_code == code
    told = objections(lease)
    free = [peer for peer, why in told.items() if why is None]
    assert len(free) == 7, "the seven others on the crowded blocks"
    lone = told[peer_id("x")]
    assert lone == (
        "the move would gain nothing" if code is ReasonCode.BALANCE else "without this server blocks 2–3 have no server"
    )
    text = page(client, f"/hints/{lease.pk}")
    assert "given a server meanwhile" not in text
    assert text.count("it could have gone as well") == 7


def test_it_says_in_words_who_was_not_to_be_counted_on(client: Client) -> None:
    settled(LOPSIDED, "e")
    mover = asked_first(LOPSIDED)
    silent, declining, busy, moved, barred, deaf = [name for name in "abcdfgh" if name != mover][:6]
    Follower.objects.filter(peer_id=peer_id(silent)).update(asked_at=now() - timedelta(minutes=9))
    Follower.objects.filter(peer_id=peer_id(declining)).update(
        not_before=now() + timedelta(minutes=4), not_because="10.0.0.9 <b>"
    )
    Follower.objects.filter(peer_id=peer_id(busy)).update(sessions=2)
    Follower.objects.filter(peer_id__in=(peer_id(deaf), peer_id("y"))).delete()
    decided(RulingKind.QUARANTINE, peer_id(barred))
    Lease.objects.create(
        swarm=SWARM,
        prefix="tiny-hf",
        peer_id=peer_id(moved),
        start=0,
        end=2,
        phase=Phase.DONE,
        origin_start=2,
        origin_end=4,
        urgency="hole",
        reason_code="hole",
        reason="",
        created_at=now(),
        expires_at=now(),
        closed_at=now() - timedelta(seconds=200),
    )
    lease = hinted(mover)
    told = objections(lease)
    assert told[peer_id(silent)] == "it has not asked for hints for 9 min"
    assert told[peer_id(declining)].startswith("it did not follow the hints before, and is not asked until")
    assert told[peer_id(barred)] == "it is in quarantine"
    assert told[peer_id(busy)] == "2 sessions are open on it"
    assert told[peer_id(deaf)] == "it does not ask for hints"
    assert told[peer_id("y")] == "the move would gain nothing", "what the planner has against it comes first"
    assert re.fullmatch(r"it came \d+ s ago, and nobody is asked to move in the first 10 minutes", told[peer_id("e")])
    assert told[peer_id(moved)] == "it moved 3 min ago, and nobody moves twice in 30 minutes"
    text = page(client, f"/hints/{lease.pk}")
    assert "2 sessions are open on it" in text and "10.0.0.9" not in text


def test_who_declined_a_move_for_less_than_a_hole_is_said_to_have_done_so(client: Client) -> None:
    settled(LOPSIDED)
    mover = asked_first(LOPSIDED)
    choosy = "b" if mover == "a" else "a"
    Follower.objects.filter(peer_id=peer_id(choosy)).update(elective_not_before=now() + timedelta(minutes=4))
    told = objections(hinted(mover))
    assert str(told[peer_id(choosy)]).startswith("it declined to move for less than a hole, and is not asked to until")


def test_a_hole_is_filled_by_whoever_asks_be_it_new_or_at_work(client: Client) -> None:
    settled(HOLED, "a", "d")
    Follower.objects.update(sessions=1)
    answer = ask("d", Span(0, 12), 12)
    assert answer.lease is not None and answer.reason_code == ReasonCode.HOLE
    told = objections(Lease.objects.get())
    assert told[peer_id("a")] is None
    assert told[peer_id("c")] == "without this server blocks 18–29 have no server"


def test_a_smaller_server_could_have_gone_to_the_end_of_the_span_where_the_hole_is(client: Client) -> None:
    settled(model(8, server("a", 0, 4), server("b", 0, 4), server("s", 0, 1), server("e", 4, 6)))
    leases = [answer.lease for answer in (ask(name, Span(0, 4), 4) for name in "ab") if answer.lease is not None]
    assert [(lease.start, lease.end) for lease in leases] == [(4, 8)]
    assert objections(Lease.objects.get())[peer_id("s")] is None


def test_the_spans_are_ranked_by_what_is_believed(client: Client) -> None:
    """By its report the boaster makes blocks 2–3 the fastest; as it is measured, they are the slowest."""
    boasted = replace(LOPSIDED, servers=(*LOPSIDED.servers[:-2], server("x", 2, 4, throughput=9_000.0), server("y", 2, 4)))
    settled(boasted)
    evidence.note_probe(SWARM, Subject("tiny-hf", peer_id("x"), Span(2, 4)), now().timestamp(), Rate(10.0))
    lease = hinted(asked_first(boasted))
    first = lease.inputs["ranking"][0]
    assert first["blocks"] == "blocks 2–3" and "slowest block 22 → " in first["effect"]


def test_what_was_counted_on_is_kept_without_anybody_s_network(client: Client) -> None:
    shared = {peer_id("x"), peer_id("y")}
    visited = replace(
        LOPSIDED,
        servers=tuple(
            replace(s, visit=Visit(s.peer_id, now().timestamp(), Outcome.ANSWERED, network="5f4dcc3b5aa765d6"))
            if s.peer_id in shared
            else s
            for s in LOPSIDED.servers
        ),
    )
    settled(visited)
    evidence.note_probe(SWARM, Subject("tiny-hf", peer_id("x"), Span(2, 4)), now().timestamp(), Rate(4.0))
    lease = hinted(asked_first(visited))
    told = {item["peer_id"]: item for item in read(client, f"/hints/{lease.pk}")["inputs"]["concerned"]}
    assert {peer for peer, item in told.items() if item["together"] == 1} == shared
    boaster = told[peer_id("x")]
    assert (boaster["reported_tokens_per_second"], boaster["believed_tokens_per_second"]) == (10.0, 5.0)
    assert boaster["here_for"] == "1 d" and told[lease.peer_id]["together"] is None
    assert "5f4dcc3b5aa765d6" not in str(read(client, f"/hints/{lease.pk}"))
    text = page(client, f"/hints/{lease.pk}")
    assert "What was counted on of the servers concerned" in text and "5 tok/s" in text


def test_a_hidden_server_stays_hidden_in_what_was_counted_on(client: Client) -> None:
    settled(LOPSIDED)
    lease = hinted(asked_first(LOPSIDED))
    Hidden.objects.create(kind=Kind.PEER, value=peer_id("x"))
    assert peer_id("x") not in client.get(f"/api/v1/hints/{lease.pk}").content.decode()
    assert peer_id("x") not in page(client, f"/hints/{lease.pk}") and f"…{peer_id('x')[-6:]}" not in page(
        client, f"/hints/{lease.pk}"
    )


def test_however_large_a_swarm_is_a_hint_keeps_little() -> None:
    crowd = model(4, *(server(f"s{n}", 0, 2) for n in range(120)), server("x", 2, 4), server("y", 2, 4))
    settled(crowd)
    lease = hinted(asked_first(crowd))
    assert len(lease.inputs["candidates"]) == 12 and len(lease.inputs["concerned"]) == 24
