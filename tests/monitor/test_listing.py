"""The table of servers follows its address: filter, order, page, columns; what makes no sense is as if it were not there."""

from __future__ import annotations

import pytest
from django.test import Client

from monitor.listing import A_PAGE, View, listing, view_of
from swarm.snapshot import PeerState
from tests.monitor.seeding import announced, online, seed, unreachable
from tests.swarms import model, peer_id, server

MANY = tuple(server(f"s{n}", n, n + 2, throughput=float(n)) for n in range(60))


def test_the_address_says_the_view_and_the_view_its_address() -> None:
    view = view_of({"state": "online", "block": "7", "sort": "fastest", "page": "2", "more": "1"})
    assert view == View("online", 7, "fastest", 2, True)
    assert view.link() == "?state=online&block=7&sort=fastest&page=2&more=1#servers"
    assert view_of({}).plain and view_of({"utm": "x"}).plain


@pytest.mark.parametrize(
    "query", [{"state": "dead"}, {"block": "-1"}, {"block": "1e3"}, {"sort": "'; --"}, {"page": "0"}, {"page": "x"}]
)
def test_what_makes_no_sense_is_not_there(query: dict[str, str]) -> None:
    assert view_of(query).plain


def test_pages_hold_everyone_once() -> None:
    pages = [listing(MANY, View(page=number)) for number in (1, 2, 3)]
    shown = [who.peer_id for page in pages for who in page.servers]
    assert len(shown) == len(set(shown)) == 60 and len(pages[0].servers) == A_PAGE
    assert (pages[2].first, pages[2].last, pages[2].older, pages[2].pages) == (51, 60, "", 3)
    assert listing(MANY, View(page=99)).view.page == 3, "beyond the last page is the last page"


def test_orders_and_filters() -> None:
    assert listing(MANY, View(order="fastest")).servers[0].record.throughput == 59.0
    unsaid = server("quiet", 0, 1, throughput=None)
    assert listing((unsaid, *MANY[:3]), View(order="fastest")).servers[-1] == unsaid, "not shared is not the fastest"
    assert {who.span.start for who in listing(MANY, View(block=10)).servers} == {9, 10}
    mixed = (server("a", 0, 1), server("j", 0, 1, PeerState.JOINING))
    chosen = listing(mixed, View(state="joining"))
    assert [who.peer_id for who in chosen.servers] == [peer_id("j")] and chosen.said == "state=joining"
    assert [choice.words for choice in chosen.states] == ["all 2", "online 1", "joining 1"]


@pytest.mark.django_db
def test_a_filter_that_finds_nothing_leads_back(client: Client) -> None:
    seed(model(3, online("a", 0, 3), announced("j", 0, 3, PeerState.JOINING)))
    html = client.get("/m/tiny-hf?state=unreachable").content.decode()
    assert 'No servers match state=unreachable. <a href="?#servers">Clear filter</a> (2 servers).' in html


@pytest.mark.django_db
def test_a_block_leads_to_its_servers(client: Client) -> None:
    seed(model(3, online("a", 0, 1), online("b", 1, 3), unreachable("c", 0, 3)))
    html = client.get("/m/tiny-hf?block=2").content.decode()
    assert f'id="s-{peer_id("b")}"' in html and f'id="s-{peer_id("c")}"' in html and f'id="s-{peer_id("a")}"' not in html
    assert "2 of 3 match block=2." in html and 'id="p-servers"' in html and "data-own" in html
    assert 'href="?block=2#servers"' in html, "each cell is a link to its block"
