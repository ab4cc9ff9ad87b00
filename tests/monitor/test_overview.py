"""The overview: a sentence a model, worst first; what helps most; who carries the swarm; and how the monitor itself is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries
from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.history.models import PeerDay
from monitor.history.people import carriers
from monitor.store import store
from swarm.snapshot import Server
from tests.monitor.seeding import BOOT, NOW, SWARM, failure, online, report, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)


def page(client: Client) -> str:
    return " ".join(client.get("/").content.decode().split())


def test_models_come_worst_first_with_what_is_missing_and_who_left(client: Client) -> None:
    fine = replace(model(4, online("a", 0, 4), online("b", 0, 4)), prefix="fine-hf")
    torn = replace(model(4, online("a", 0, 2), unreachable("c", 2, 4)), prefix="torn-hf")
    store(report(NOW, fine, torn))
    html = page(client)
    assert "1 of 2 models cannot run" in html.split("</h1>")[0]
    assert html.index('id="model-torn-hf"') < html.index('id="model-fine-hf"')
    assert f"Last: …{peer_id('c')[-6:]}, does not answer" in html and ">Serve blocks 2–3</a>" in html
    assert "2 models, 2 servers online" in html, "a peer in two models is one server"


def test_what_helps_most_leads_to_the_wizard(client: Client) -> None:
    seed(model(12, online("a", 0, 6), online("b", 0, 6)))
    html = page(client)
    assert '<h3><a href="/connect?model=tiny-hf">Blocks 4–11 of tiny-hf</a></h3>' in html
    assert "Blocks 6–11 have no server." in html and "the model runs again" in html


def test_where_nothing_is_needed_that_is_said(client: Client) -> None:
    seed(model(4, *(online(f"s{n}", 0, 4) for n in range(6))))
    assert "Nothing is missing: every block has six servers or more." in page(client)


@pytest.mark.parametrize(
    ("unread", "online_there"), [(frozenset(range(4)), ()), (frozenset({2, 3}), (online("a", 0, 2),))], ids=["all", "half"]
)
def test_blocks_that_could_not_be_read_are_neither_missing_nor_well(
    client: Client, unread: frozenset[int], online_there: tuple[Server, ...]
) -> None:
    seed(model(4, *online_there, unread=unread))
    html = page(client)
    first, last = min(unread), max(unread)
    assert f"Not all of it is known: of tiny-hf blocks {first}–{last} could not be read." in html
    assert "no server" not in html and "Nothing is missing" not in html and "runs again" not in html


def test_a_stale_snapshot_advises_nothing(client: Client) -> None:
    seed(model(12, online("a", 0, 6), online("b", 0, 6)), at=NOW - 5_000)
    html = page(client)
    assert "Not known while the swarm is not seen" in html and "of tiny-hf</a>" not in html


def test_a_monitor_that_does_not_see_advises_nothing(client: Client) -> None:
    store(failure(NOW, "no bootstrap peer answers"))
    html = page(client)
    assert "Not known while the swarm is not seen" in html
    assert f'bootstrap <span class="peer">…{BOOT[-6:]}</span> did not answer' in html


def test_who_carries_it_is_counted_in_block_hours(client: Client) -> None:
    for minute in range(6):
        at = NOW + minute * 60
        seed(model(40, online("a", 0, 40, at=at), online("b", 0, 4, at=at)), at=at)
    rollups.roll_up(moment(NOW + 300))
    rollups.roll_up(moment(NOW + 300))
    served = PeerDay.objects.get(peer__peer_id=peer_id("a")).block_minutes
    assert len(served) == 24 and sum(served) == 6 * 40, "rolled up twice, counted once"
    assert [(who.peer_id, who.block_hours) for who in carriers(SWARM, NOW + 300)] == [(peer_id("a"), 4)]
    html = page(client)
    assert "Who carries it" in html and '<bdi>a</bdi> <span class="quiet">4 block-hours</span>' in html
