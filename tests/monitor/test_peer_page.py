"""A server's page says what was seen of it, what that rests on, and what would happen if it left; never what it did not see."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries
from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.store import store
from swarm.snapshot import PeerState, Server
from tests.monitor.seeding import NOW, announced, failure, online, report, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, NOW + 12)


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: now)


def page(client: Client, name: str, status: int = 200) -> str:
    response = client.get(f"/p/{peer_id(name)}")
    assert response.status_code == status
    return " ".join(response.content.decode().split())


def test_an_online_server_serves_its_blocks_and_says_how_fresh_that_is(client: Client) -> None:
    seed(model(4, online("a", 0, 4), online("b", 0, 3), online("c", 1, 4)))
    html = page(client, "a")
    assert "<title>● …" in html and "Online, serving blocks 0–3 of tiny-hf" in html
    assert "Last sign of life 12 s ago. Asked 12 s ago." in html
    assert "Every block would still have a server, 2 of them only one (blocks 0, 3)." in html
    assert page(client, "b").count("Every block that it serves would still have") == 0


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ((), "4 blocks would have no server (blocks 0–3): the model could not run."),
        (("b", "c"), "Every block that it serves would still have two servers or more."),
    ],
)
def test_what_would_happen_if_it_left(client: Client, others: tuple[str, ...], words: str) -> None:
    seed(model(4, online("a", 0, 4), *(online(name, 0, 4) for name in others)))
    assert f"If it left:</strong> {words}" in page(client, "a")


def test_an_unreachable_server_gets_the_reason_and_what_to_do(client: Client) -> None:
    seed(model(4, unreachable("a", 0, 4, detail="no answer within 5 s")))
    html = page(client, "a")
    assert "Unreachable: announced for blocks 0–3 of tiny-hf, but it does not answer us" in html
    assert (
        "no answer within 5 s (addresses tried: not told)" in html
        and "Run sepal doctor on the machine, with the same arguments as sepal serve" in html
        and "Nothing would change" in html
    )


def test_a_server_that_is_gone_is_remembered_with_how_it_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(4, online("a", 0, 4), online("b", 0, 4)), at=NOW - 7_230)
    seed(model(4, online("b", 0, 4, at=NOW)), at=NOW - 7_200)
    seed(model(4, online("b", 0, 4, at=NOW)))
    html = page(client, "a")
    assert "Gone: last seen" in html and "stopped announcing, and its record ran out" in html
    leaving = announced("c", 0, 4, PeerState.LEAVING)
    seed(model(4, leaving, online("b", 0, 4)), at=NOW + 5)
    seed(model(4, online("b", 0, 4)), at=NOW + 10)
    assert "left normally" in page(client, "c")


def test_a_server_never_seen_is_told_where_it_may_be(client: Client) -> None:
    seed(model(4, online("a", 0, 4)))
    html = page(client, "nobody", status=404)
    assert f"Unknown: we have never seen …{peer_id('nobody')[-6:]}" in html
    assert "Is the prefix the same?" in html and f'href="/api/v1/is_reachable/{peer_id("nobody")}"' in html
    assert client.get("/p/notapeerid").status_code == 404


def test_what_is_not_shared_reads_so(client: Client) -> None:
    seed(model(1, online("a", 0, 1, throughput=None)))
    html = page(client, "a")
    assert '<dt>Throughput</dt><dd class="unsaid">not shared</dd>' in html and "0 tok/s" not in html


def test_a_blind_monitor_says_unknown_of_a_server_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(1, online("a", 0, 1)))
    store(failure(NOW + 30))
    at(monkeypatch, NOW + 600)
    html = page(client, "a")
    assert "Unknown — when last checked, 10 min ago: online, serving block 0 of tiny-hf" in html and "If it left" not in html


def test_its_day_and_its_moves_are_told_in_words(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(minute: int, server: Server) -> None:
        seed(model(12, online("b", 0, 12, at=NOW + minute * 60), server), at=NOW + minute * 60)

    for minute, span in ((0, (0, 6)), (1, (0, 6)), (2, None), (3, (6, 12)), (4, (0, 6))):
        when = NOW + minute * 60
        look(minute, online("a", *span, at=when) if span else announced("a", 6, 12, PeerState.JOINING, at=when))
    rollups.roll_up(moment(NOW + 240))
    at(monkeypatch, NOW + 245)
    html = page(client, "a")
    assert "Moved twice in 24 hours, 1 min of loading; once back to blocks that it had held." in html
    assert "joining, blocks 6–11" in html and "online, blocks 0–5" in html
    assert "of the watched time it was online" in html
    assert "Mean of the last week, while online: 10 tok/s, as it reports." in html


def test_neighbours_are_those_it_measured_its_way_to(client: Client) -> None:
    known, far = online("b", 1, 2), peer_id("far")
    told = online("a", 0, 1)
    record = replace(told.record, next_pings={known.peer_id: 0.05, far: float("inf")})
    seed(model(2, replace(told, record=record), known))
    html = page(client, "a")
    assert "50 ms, block 1" in html and "no answer, not in this model now" in html


def test_one_peer_in_two_models_has_a_part_for_each(client: Client) -> None:
    other = replace(model(2, online("a", 0, 2)), prefix="other-hf")
    store(report(NOW, model(4, unreachable("a", 0, 4)), other))
    html = page(client, "a")
    assert "Online, serving blocks 0–1 of other-hf" in html.split("</h1>")[0], "the liveliest comes first"
    assert 'id="p-m-tiny-hf"' in html and 'id="p-m-other-hf"' in html


def test_the_number_of_reads_is_the_same_for_any_server(client: Client, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
    seed(model(4, *(online(f"s{n}", 0, 4) for n in range(40)), online("a", 0, 4)))
    # Those of every page with its models, the rows of the peer, its answers, its number, samples, minutes, days, hours.
    with django_assert_num_queries(22):
        page(client, "a")
