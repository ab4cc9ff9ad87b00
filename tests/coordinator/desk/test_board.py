"""The board: what needs action, why, since when, who has promised to help; ghosts, doubles, replay, explained hints."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.test import Client

from coordinator.desk import board, moves, oddities
from coordinator.desk.board import Known, Promised
from coordinator.models import Lease
from monitor.models import Crawl
from monitor.queries import watch
from swarm.coverage import coverage
from swarm.operators import operators_of
from swarm.snapshot import Model, Outcome, PeerState, Server, Visit
from swarm.wire.spans import Span
from tests.coordinator.desk.people import logged_in
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.monitor import seeding
from tests.swarms import model, peer_id, server


def named(who: Server, name: str) -> Server:
    return replace(who, record=replace(who.record, public_name=name))


NOTHING = Known()


def told(swarm: Model, known: Known = NOTHING) -> list[tuple[str, str, int | None, int | None]]:
    return [(row.kind, row.blocks, row.now, row.left) for row in board.rows(SWARM, swarm, known)]


def test_holes_come_first_then_what_was_not_read_then_thin_then_one_operator() -> None:
    swarm = model(
        12,
        server("a", 0, 4),
        named(server("b", 4, 8), "ada"),
        named(server("c", 4, 8), "ada"),
        server("d", 8, 10),
        server("e", 8, 10),
        unread=frozenset({11}),
    )
    assert told(swarm) == [
        ("hole", "block 10", 0, 0),
        ("unread", "block 11", None, None),
        ("thin", "blocks 0–3", 1, 0),
        ("risk", "blocks 4–7", 2, 0),
    ]


def test_a_row_says_who_leaves_how_low_it_was_what_is_promised_and_since_when() -> None:
    swarm = model(4, named(server("a", 0, 4), "ada"), server("j", 0, 2, PeerState.JOINING))
    lease = Promised("1", peer_id("x"), Span(1, 3), "accepted")
    known = Known((lease,), {0: 1, 1: 0}, {0: 100.0, 1: 50.0})
    (row,) = board.rows(SWARM, swarm, known)
    assert (row.largest, row.low, row.joining, row.since, row.leases) == ("ada", "0", 0, 50.0, (lease,))
    (calm,) = board.rows(SWARM, swarm, Known(lows={}))
    assert (calm.low, calm.since) == ("2 or more", None)
    (blind,) = board.rows(SWARM, swarm, Known())
    assert blind.low == "not watched"


def test_where_nothing_needs_action_the_next_risk_is_said() -> None:
    swarm = model(4, *(named(server(n, 0, 4), "ada") for n in "ab"), *(server(n, 0, 2) for n in "cd"), server("e", 2, 4))
    assert told(swarm) == []
    assert board.next_risk([swarm]) == "Next risk: blocks 2–3 of tiny-hf, with 1 server left if ada leaves."


def test_page_board_and_planner_mean_the_same_by_one_network() -> None:
    """Whatever its servers call themselves, and without a word of where it is."""
    servers = [
        replace(server(name, 0, 4), visit=Visit(peer_id(name), 0.0, Outcome.ANSWERED, network="5f4dcc3b5aa765d6"))
        for name in "ab"
    ]
    swarm = model(4, *servers)
    (row,) = board.rows(SWARM, swarm, NOTHING)
    assert (row.kind, row.what, row.left, row.largest) == (
        "risk",
        "all in one network or of one operator",
        0,
        "the network of a",
    )
    assert coverage(swarm).sentence().endswith("but those of blocks 0–3 are all in one network")
    assert operators_of(swarm)[peer_id("a")] == operators_of(swarm)[peer_id("b")]
    assert "5f4dcc3b5aa765d6" not in repr(row) + coverage(swarm).sentence()


def test_nameless_servers_stand_for_themselves() -> None:
    swarm = model(2, *(replace(server(n, 0, 2), record=replace(server(n, 0, 2).record, public_name=None)) for n in "ab"))
    assert told(swarm) == []


def test_an_id_that_keeps_changing_its_blocks_and_a_name_with_several_ids_are_doubles() -> None:
    published = _published(model(4, named(server("a", 0, 4), "ada"), named(server("b", 0, 4), "ada"), server("c", 0, 4)))
    found = oddities.doubles(published, {peer_id("c"): oddities.MOVES_SUSPECT, peer_id("a"): oddities.MOVES_SUSPECT - 1})
    assert [(double.kind, double.subject) for double in found] == [
        ("one id, changing blocks", peer_id("c")),
        ("one name, several ids", "ada"),
    ]


def _published(swarm: Model) -> Any:
    from monitor.published import CrawlFacts, Published
    from swarm.snapshot import Snapshot

    return Published(Snapshot(SWARM, 1_000.0, (swarm,)), CrawlFacts(999.0, 1_001.0), 1_001.0, 30.0)


def text(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200, path
    assert "no-store" in answer["Cache-Control"] and "private" in answer["Cache-Control"]
    words = re.sub(r"<(script|style).*?</\1>", "", answer.content.decode(), flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", words)).split())


@pytest.mark.django_db
def test_the_admin_opens_with_the_board_and_its_filters() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    client = logged_in()
    page = text(client, "/admin/")
    assert "What needs action" in page and "2 of 2 ranges of blocks with fewer than 2 servers" in page
    assert "✕ blocks 12–17 no server" in page and f"…{peer_id('d')[-6:]} offered" in page
    assert "1 of 2 ranges" in text(client, "/admin/", kind="thin")
    assert "No range matches this filter" in text(client, "/admin/", model="other-hf")


@pytest.mark.django_db
def test_the_board_knows_the_low_of_the_day_and_the_age_of_a_hole() -> None:
    seen(HOLED, ago_s=300)
    seen(model(30, server("a", 0, 30), server("b", 0, 30)), ago_s=200)
    seen(HOLED, ago_s=60)
    seen(HOLED, ago_s=20)
    page = text(logged_in(), "/admin/", kind="hole")
    assert re.search(r"blocks 12–17 no server tiny-hf 0 0 – 0 none (60|6\d) s|1 min", page), page


@pytest.mark.django_db
def test_where_nothing_is_below_target_the_board_says_so_and_what_is_next() -> None:
    seen(model(4, *(server(n, 0, 4) for n in "abc")))
    page = text(logged_in(), "/admin/")
    assert "No range below target (2). Next risk: blocks 0–3 of tiny-hf, with 2 servers left if a leaves." in page


@pytest.mark.django_db
def test_a_blind_monitor_claims_no_calm() -> None:
    seen(model(4, *(server(n, 0, 4) for n in "abc")), ago_s=600)
    page = text(logged_in(), "/admin/")
    assert "Last check 10 min ago" in page and "No range below target" not in page


@pytest.mark.django_db
def test_before_the_first_check_the_board_says_that_too() -> None:
    assert "This swarm has not been seen yet." in text(logged_in(), "/admin/")


@pytest.mark.django_db
def test_the_queries_of_the_board_do_not_grow_with_the_swarm(django_assert_max_num_queries: Any) -> None:
    client = logged_in()
    seen(model(4, server("a", 0, 4)), ago_s=40)
    client.get("/admin/")
    with django_assert_max_num_queries(23) as small:
        client.get("/admin/")
    seen(model(120, *(server(f"s{n}", n % 100, n % 100 + 20) for n in range(150))))
    with django_assert_max_num_queries(len(small)):
        client.get("/admin/")


@pytest.mark.django_db
def test_ghosts_and_doubles_are_listed_with_a_way_to_quarantine() -> None:
    ghost = seeding.unreachable("g", 2, 4, at=_now())
    twins = [named(server("a", 0, 4), "ada"), named(server("b", 0, 4), "ada")]
    seen(model(4, *twins, ghost))
    page = text(logged_in(), "/admin/oddities/")
    assert "Ghosts: announced, and nobody answers" in page and f"…{peer_id('g')[-6:]}" in page
    assert "it did not answer in time" in page and "one name, several ids ada 2 servers carry this name" in page
    form = logged_in().get("/admin/desk/quarantine/add/", {"subject": peer_id("g")}).content.decode()
    assert f'value="{peer_id("g")}"' in form


@pytest.mark.django_db
def test_changes_of_span_are_counted_over_an_hour() -> None:
    for turn in range(5):
        at = 2 * (turn % 2)
        seen(model(4, server("a", at, at + 2), server("b", 0, 4)), ago_s=60.0 * (10 - turn))
    assert moves.changes(SWARM, _now()) == {peer_id("a"): 4}
    assert moves.changes(SWARM, _now() + 7_200) == {}


def _now() -> float:
    import time

    return time.time()


@pytest.mark.django_db
def test_a_hint_is_explained_with_its_inputs_ranking_and_who_got_it() -> None:
    holed()
    assert ask("d", Span(0, 12)).lease is not None
    lease, client = Lease.objects.get(), logged_in()
    assert "Explain" in client.get("/admin/coordinator/lease/").content.decode()
    page = text(client, f"/admin/hints/{lease.pk}/")
    for words in ("Who got it", peer_id("d"), "What was known", "Spans by how much they would help", "Other servers online"):
        assert words in page, words


@pytest.mark.django_db
def test_a_replay_shows_the_pages_as_they_were(client: Client) -> None:
    seen(HOLED, ago_s=300)
    seen(model(30, server("a", 0, 30), server("b", 0, 30)))
    broken, whole = Crawl.objects.order_by("started_at")
    staff = logged_in()
    assert f"/admin/replay/{broken.pk}/" in staff.get("/admin/replay/").content.decode()
    then = staff.get(f"/admin/replay/{broken.pk}/tiny-hf/").content.decode()
    assert "cannot run: blocks 12–17 have no server" in then and f"Replay: the minute of check {broken.pk}" in then
    assert "unsafe" in staff.get("/admin/")["Content-Security-Policy"]
    assert f'href="/admin/replay/{whole.pk}/tiny-hf/" rel="next"' in then and peer_id("d") in then
    assert "cannot run:" in staff.get(f"/admin/replay/{broken.pk}/").content.decode()
    assert "cannot run:" not in client.get("/m/tiny-hf").content.decode()
    assert watch(SWARM).published is not None


@pytest.mark.django_db
def test_what_cannot_be_replayed_is_said() -> None:
    from monitor.store import store

    store(seeding.failure(_now()))
    failed = Crawl.objects.get()
    answer = logged_in().get(f"/admin/replay/{failed.pk}/")
    assert answer.status_code == 404
    assert logged_in().get(f"/admin/replay/{2**63}/").status_code == 404
