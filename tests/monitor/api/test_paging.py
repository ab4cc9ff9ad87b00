"""Whoever turns pages sees every row that was there from the start exactly once, whatever comes and goes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.api import sight
from monitor.history.minutes import moment
from monitor.history.models import Incident
from monitor.models import Crawl
from tests.monitor.seeding import NOW, online, seed
from tests.swarms import model

QUICK = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def walk(client: Client, path: str, key: str, limit: int, meanwhile: Callable[[int], None]) -> list[Any]:
    """The keys of all rows, page by page; `meanwhile` is called after each page with its number."""
    found: list[Any] = []
    url: str | None = f"/api/v1/{path}{'&' if '?' in path else '?'}limit={limit}"
    number = 0
    while url is not None:
        response = client.get(url)
        page = response.json()
        assert len(page["items"]) <= limit
        found += [item[key] for item in page["items"]]
        url = page["next"]
        assert (response.get("Link") == f'<{url}>; rel="next"') if url else "Link" not in response
        number += 1
        meanwhile(number)
    return found


def crawl(at: float) -> Crawl:
    return Crawl.objects.create(
        swarm="main", started_at=moment(at), finished_at=moment(at + 1), observed_at=None, outcome="failed", reason="made up"
    )


def blindness(at: float) -> Incident:
    started, ended = moment(at), moment(at + 1)
    return Incident.objects.create(
        swarm="main", kind="blind", started_before=started, confirmed_at=started, bad_at=started, ended_before=ended
    )


@pytest.mark.django_db
@given(rows=st.integers(0, 9), limit=st.integers(1, 4), coming=st.lists(st.integers(0, 3), max_size=4))
@QUICK
def test_a_list_of_newest_first_loses_and_doubles_nothing(client: Client, rows: int, limit: int, coming: list[int]) -> None:
    for path, make in (("crawls", crawl), ("incidents", blindness)):
        Crawl.objects.all().delete()
        Incident.objects.all().delete()
        before = {make(NOW + number).pk for number in range(rows)}

        def meanwhile(page: int, make: Callable[[float], Any] = make) -> None:
            for number in range(coming[page - 1] if page <= len(coming) else 0):
                make(NOW + 100 + number)

        seen = walk(client, path, "id", limit, meanwhile)
        assert len(seen) == len(set(seen)) and before <= set(seen) and seen == sorted(seen, reverse=True)


@pytest.mark.django_db
@given(
    limit=st.integers(1, 4),
    there=st.sets(st.sampled_from("abcdefgh"), min_size=1),
    later=st.lists(st.sets(st.sampled_from("ijklmn")), max_size=4),
)
@QUICK
def test_servers_come_and_move_while_somebody_turns_pages(
    client: Client, clock: list[float], limit: int, there: set[str], later: list[set[str]]
) -> None:
    Crawl.objects.all().delete()
    sight.forget()
    at = [clock[0]]

    def look(names: set[str], shift: int) -> None:
        at[0] += 1
        servers = (online(name, shift, shift + 4, at=at[0]) for name in sorted(names))
        seed(model(12, *servers), at=at[0])

    look(there, 0)
    before = {item["peer_id"] for item in client.get("/api/v1/servers?state=online").json()["items"]}

    def meanwhile(page: int) -> None:
        if page <= len(later):
            look(there | later[page - 1], page)

    seen = walk(client, "servers?state=online", "peer_id", limit, meanwhile)
    assert len(seen) == len(set(seen)) and before <= set(seen)


@pytest.mark.django_db
def test_filters_stay_while_pages_are_turned(client: Client, site: None) -> None:
    for path, key in (("servers?prefix=broken-hf&state=online", "peer_id"), ("crawls?outcome=succeeded", "id")):
        whole = [item[key] for item in client.get(f"/api/v1/{path}").json()["items"]]
        assert walk(client, path, key, 1, lambda _: None) == whole and len(whole) > 1
