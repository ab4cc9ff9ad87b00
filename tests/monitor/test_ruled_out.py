"""Who is in quarantine, or answers nonsense, proves no size; and a size that only such servers bore out falls again, while one
that others bore out stands though they are away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from importlib import import_module

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import F
from django.test import Client

from coordinator.desk.models import Ruling
from monitor import queries, rounds
from monitor.crawl import crawl
from monitor.history.minutes import moment
from monitor.models import KEPT_FOR, Crawl, ServerRow
from monitor.rates.models import AnswerFinding
from monitor.sizes import Witnesses
from monitor.store import store
from swarm.coverage import Verdict, coverage
from swarm.snapshot import Model, Outcome, PeerState, Visit
from swarm.wire.spans import Span
from tests.monitor.seeding import NOW, SWARM, online, report, seed, unreachable
from tests.monitor.test_rounds import MadeUpCrawler
from tests.monitor.test_sizes import GOOD, Swarm
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

FORGED = {"num_blocks": 31, "repository": None}


class Watched(Swarm):
    """One that the site watches: what it remembers goes through the database."""

    def __init__(self, prefix: str = "m") -> None:
        super().__init__(prefix)
        self.at = NOW
        self.look_for = (prefix,) if prefix.startswith("_") else ()

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        """Who has moved says no to what he held before."""
        held = next((blocks for name, blocks in self.servers.items() if peer_id(name) == peer), None)
        answer = await super().visit(peer, prefix, span)
        return answer if held is None or held.covers(span) else replace(answer, outcome=Outcome.NOT_HELD)

    def leaves(self, name: str) -> None:
        del self.servers[name]
        self.silent.add(name)

    def look(self) -> Model:
        self.at += 30.0
        known, before = queries.known_models(SWARM, self.at), queries.remembered(SWARM, self.at)
        told = queries.witnesses(SWARM, self.at)
        found = asyncio.run(crawl(SWARM, self, lambda: self.at, known, before, self.look_for, witnesses=told))
        store(found)
        assert found.snapshot is not None
        seen = found.snapshot.model(self.prefix)
        assert seen is not None
        return seen

    def size(self) -> tuple[int, bool]:
        seen = self.look()
        return seen.num_blocks, seen.at_least


def gone_for(time: timedelta) -> None:
    """Those that have left did so that much earlier; and the first crawl bears out that the clock is right."""
    Crawl.objects.filter(pk=Crawl.objects.earliest("pk").pk).update(started_at=F("started_at") - timedelta(hours=2))
    changed = ServerRow.objects.filter(state=PeerState.GONE.value).update(state_since=F("state_since") - time)
    assert changed == 1


def quarantine(name: str, at: float, days: int = 30) -> Ruling:
    staff, _ = get_user_model().objects.get_or_create(username="keeper")
    return Ruling.objects.create(
        kind="quarantine",
        subject=peer_id(name),
        words="it answers for blocks that the model has not",
        starts_at=moment(at),
        ends_at=moment(at) + timedelta(days=days),
        made_by=staff,
        made_at=moment(at),
    )


def judged(name: str, standing: str, times: int, at: float) -> None:
    wrong = "nothing but zeros" if standing == "wrong" else ""
    AnswerFinding.objects.create(
        swarm=SWARM, prefix="m", peer_id=peer_id(name), at=moment(at), standing=standing, round=1,
        start=0, end=3, wrong=wrong, times=times, against=0 if wrong else 2,
    )  # fmt: skip


def lied_to() -> Watched:
    """Nine blocks, each on two servers, as the index says; and somebody who answers for as many again and more."""
    swarm = Watched()
    swarm.index_says(GOOD)
    swarm.servers = {"a": Span(0, 9), "b": Span(0, 9), "liar": Span(9, 31)}
    assert swarm.size() == (31, True)
    return swarm


def test_quarantine_takes_away_a_liars_proof_and_its_end_gives_it_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    swarm = lied_to()
    ruling = quarantine("liar", swarm.at)
    seen = swarm.look()
    assert (seen.num_blocks, seen.at_least, seen.conflict) == (9, False, "") and seen.repository == GOOD["repository"]
    assert coverage(seen).verdict is Verdict.COMPLETE
    assert swarm.size() == (9, False)
    monkeypatch.setattr(queries.time, "time", lambda: swarm.at)
    told = client.get("/api/v1/models/m").json()
    assert (told["verdict"], told["size_known"], told["num_blocks"]) == ("complete", True, 9)
    liar = next(server for server in told["servers"] if server["peer_id"] == peer_id("liar"))
    assert (liar["state"], liar["start"], liar["end"]) == ("quarantined", 9, 31)
    for path in ("/", "/m/m", f"/p/{peer_id('liar')}", "/metrics", "/api/v1/models/m/blocks", "/api/v1/state", "/api/v1/gaps"):
        assert client.get(path).status_code == 200, path
    Ruling.objects.filter(pk=ruling.pk).update(ends_at=moment(swarm.at))
    assert swarm.size() == (31, True)


def test_who_is_in_quarantine_from_the_first_proves_nothing() -> None:
    swarm = Watched()
    quarantine("liar", NOW)
    swarm.index_says(GOOD)
    swarm.servers = {"a": Span(0, 9), "liar": Span(0, 31)}
    assert swarm.size() == (9, False)
    swarm.index_says()
    assert swarm.size() == (9, False)


@pytest.mark.parametrize(
    ("standing", "times", "size"),
    [("wrong", 2, (9, False)), ("wrong", 1, (31, True)), ("differs", 0, (31, True))],
    ids=["nonsense twice", "nonsense once", "others disagree"],
)
def test_answers_that_are_wrong_by_themselves_prove_nothing(standing: str, times: int, size: tuple[int, bool]) -> None:
    """Whatever blocks they were. Once may be a moment's fault, and where others disagree it may be theirs."""
    swarm = lied_to()
    judged("liar", standing, times, swarm.at)
    assert swarm.size() == size


def test_a_liar_who_forges_the_index_too_leaves_a_size_that_nobody_proves_until_the_index_is_right() -> None:
    swarm = lied_to()
    swarm.index_says(GOOD, FORGED)
    assert swarm.size() == (31, False)
    quarantine("liar", swarm.at)
    seen = swarm.look()
    assert (seen.num_blocks, seen.at_least) == (9, True)
    assert seen.conflict == "the index of models says 9 and 31 blocks, and nobody proves which"
    swarm.index_says(GOOD)
    assert swarm.size() == (9, False), "though servers answer all the while"


def test_what_the_index_names_and_nothing_contradicts_stands_though_only_a_liar_holds_the_end() -> None:
    swarm = Watched()
    swarm.index_says(GOOD)
    swarm.servers = {"a": Span(0, 6), "liar": Span(6, 9)}
    assert swarm.size() == (9, False)
    quarantine("liar", swarm.at)
    for said in ((GOOD,), ()):
        swarm.index_says(*said)
        assert swarm.size() == (9, False)


@pytest.mark.parametrize("goes", ["silent", "gone", "moved"])
def test_what_somebody_else_bore_out_stands_while_he_is_away(goes: str) -> None:
    swarm = Watched("_mine")
    swarm.servers = {"a": Span(0, 3), "b": Span(3, 9)}
    assert swarm.size() == (9, True)
    if goes == "moved":
        swarm.servers["b"] = Span(0, 3)
    elif goes == "gone":
        swarm.leaves("b")
    else:
        swarm.silent = {"b"}
    swarm.servers["liar"] = Span(3, 31)
    assert swarm.size() == (31, True)
    quarantine("liar", swarm.at)
    for _ in range(2):
        assert swarm.size() == (9, True)
    if goes == "gone":
        gone_for(timedelta(days=6))
        swarm.look()
    assert swarm.size() == (9, True)


def test_a_size_that_only_who_is_ruled_out_is_remembered_to_have_borne_out_falls_after_a_week() -> None:
    swarm = Watched("_mine")
    swarm.servers = {"a": Span(0, 3), "b": Span(3, 9)}
    swarm.look()
    swarm.leaves("b")
    swarm.servers["liar"] = Span(3, 31)
    swarm.look()
    quarantine("liar", swarm.at)
    assert swarm.size() == (9, True)
    gone_for(KEPT_FOR)
    swarm.look()
    assert swarm.size() == (3, True)


def test_a_size_that_nobody_contradicts_stands_for_as_long_as_anybody_answers() -> None:
    swarm = Watched("_mine")
    swarm.servers = {"a": Span(0, 3), "b": Span(3, 9)}
    swarm.look()
    swarm.leaves("b")
    swarm.look()
    gone_for(2 * KEPT_FOR)
    for _ in range(2):
        assert swarm.size() == (9, True)
    assert not ServerRow.objects.filter(peer_id=peer_id("b")).exists()


def test_one_of_two_liars_in_quarantine_leaves_what_the_other_says() -> None:
    swarm = Watched("_mine")
    swarm.servers = {"a": Span(0, 3), "liar": Span(3, 31), "other": Span(3, 20)}
    assert swarm.size() == (31, True)
    quarantine("liar", swarm.at)
    assert swarm.size() == (20, True)
    quarantine("other", swarm.at)
    assert swarm.size() == (3, True)


def test_of_servers_from_before_this_was_kept_the_last_answer_counts() -> None:
    seed(model(4, online("a", 0, 4), online("b", 1, 3), unreachable("c", 0, 4)))
    ServerRow.objects.update(borne_out=None)
    with connection.cursor() as cursor:
        cursor.execute(import_module("monitor.migrations.0014_borne_out").ANSWERED)
    found = dict(ServerRow.objects.values_list("peer_id", "borne_out"))
    assert found == {peer_id("a"): 4, peer_id("b"): 3, peer_id("c"): None}


def test_both_looks_of_a_round_are_told_who_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model(4, *(online(name, 0, 4) for name in "abc"))
    seed(whole)
    quarantine("a", NOW)
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 40)
    crawler = MadeUpCrawler(report(NOW + 30, model(4)), elsewhere=report(NOW + 32, whole))
    assert rounds.run(SWARM, crawler) is not None
    told = Witnesses(frozenset({peer_id("a")}), frozenset(), {"tiny-hf": {peer_id(name): 4 for name in "abc"}})
    assert crawler.witnesses == [told, told]
    assert [server.state for server in crawler.previous[0].models[0].servers] == [PeerState.ONLINE] * 3  # type: ignore[union-attr]
