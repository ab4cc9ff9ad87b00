"""Postgres is away: the last page is still there and says from when it is; what was never seen gets one true sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.test import Client

from coordinator import outage
from monitor import queries
from tests.monitor.seeding import online, seed
from tests.swarms import model

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    outage.forget()
    yield
    outage.forget()


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it, and every question to the database fails."""

    def away(error: type[Exception] = OperationalError) -> None:
        def ask(*_: object, **__: object) -> None:
            raise error('connection to server at "127.0.0.1", port 5432 failed: Connection refused')

        for question in ("watch", "latest_snapshot", "newest_crawls"):
            monkeypatch.setattr(queries, question, ask)

    return away


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_the_last_page_is_served_and_says_from_when_it_is(client: Client, gone: Any, error: type[Exception]) -> None:
    seed(model(2, online("a", 0, 2)))
    before = client.get("/m/tiny-hf").content.decode()
    gone(error)
    after = client.get("/m/tiny-hf")
    assert after.status_code == 200 and after["Cache-Control"] == "no-store"
    page = after.content.decode()
    assert "This site's database does not answer: what you see is from " in page
    start, end = page.index('<p class="notice warning" id="outage">'), page.index("may have changed since.</p>")
    assert page[:start].rstrip() + page[end + len("may have changed since.</p>") :] == before
    assert "127.0.0.1" not in page


def test_a_page_that_was_never_served_is_one_true_sentence(client: Client, gone: Any) -> None:
    gone()
    for address in ("/", "/m/tiny-hf", "/?fragment"):
        answer = client.get(address)
        assert answer.status_code == 503 and answer["Retry-After"]
        assert "database does not answer. That says nothing about the swarm" in answer.content.decode()
        assert "5432" not in answer.content.decode()


def test_an_open_page_that_catches_up_is_not_given_an_old_one(client: Client, gone: Any) -> None:
    seed(model(2, online("a", 0, 2)))
    client.get("/?fragment")
    client.get("/")
    gone()
    assert client.get("/?fragment").status_code == 503, "what is open stays, and ages by itself"


def test_programs_get_a_problem_and_not_an_old_answer(client: Client, gone: Any) -> None:
    seed(model(2, online("a", 0, 2)))
    client.get("/api/v1/models")
    gone()
    answer = client.get("/api/v1/models")
    assert answer.status_code == 503 and answer["Content-Type"].startswith("application/problem+json")
    assert "database does not answer" in answer.json()["detail"]


def test_what_is_one_visitor_s_own_is_not_kept_for_others(client: Client, gone: Any) -> None:
    seed(model(2, online("a", 0, 2)))
    client.cookies["sessionid"] = "somebody"
    client.get("/")
    gone()
    assert Client().get("/").status_code == 503


def test_only_so_many_pages_are_kept(client: Client, monkeypatch: pytest.MonkeyPatch, gone: Any) -> None:
    monkeypatch.setattr(outage, "KEPT", 2)
    seed(model(2, online("a", 0, 2)))
    for address in ("/", "/?a", "/?b"):
        client.get(address)
    gone()
    assert [client.get(address).status_code for address in ("/", "/?a", "/?b")] == [503, 200, 200]


def test_other_faults_are_not_glossed_over(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr(queries, "watch", broken)
    with pytest.raises(ValueError, match="ours"):
        client.get("/")
