"""The search leads to the one thing that was meant, lists what it may be, and never promises what is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from monitor.store import store
from tests.monitor.seeding import NOW, online, report
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _two_models() -> None:
    named = online("a", 0, 4)
    other = replace(model(99, online("c", 0, 50)), prefix="other-hf")
    store(report(NOW, model(4, named, online("b", 2, 4)), other))


def found(client: Client, text: str, status: int = 302) -> str:
    response = client.get("/search", {"q": text})
    assert response.status_code == status
    return str(response.headers["Location"]) if status == 302 else response.content.decode()


def test_what_is_meant_beyond_doubt_is_gone_to(client: Client) -> None:
    assert found(client, f" {peer_id('nobody')} ") == f"/p/{peer_id('nobody')}", "also a server never seen: its page says so"
    assert found(client, f"…{peer_id('b')[-6:]}") == f"/p/{peer_id('b')}"
    assert found(client, "TINY-hf") == "/m/tiny-hf" and found(client, "other") == "/m/other-hf"
    assert found(client, "block 77") == found(client, "77") == "/m/other-hf?block=77#servers"


def test_what_may_be_several_is_listed(client: Client) -> None:
    html = found(client, "3", status=200)
    assert 'href="/m/tiny-hf?block=3#servers"' in html and 'href="/m/other-hf?block=3#servers"' in html


def test_what_is_nothing_says_what_can_be_searched_for(client: Client) -> None:
    html = found(client, '<script>"x"', status=404)
    assert "Nothing here is called “&lt;script&gt;&quot;x&quot;”" in html and "<script>&quot;" not in html
    assert "What do you look for?" in client.get("/search").content.decode()
