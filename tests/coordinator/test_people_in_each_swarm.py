"""The pages for people in each swarm: `/s/NAME/connect` and its like speak of that swarm, and every link stays in it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from coordinator import swarms
from coordinator.models import Lease
from monitor import live
from monitor.history.minutes import moment
from tests.coordinator.test_two_swarms import HOLED, WHOLE, look
from tests.fake_gateway import fake_gateway
from tests.swarms import peer_id

pytestmark = pytest.mark.django_db(transaction=True)

OF_THE_SITE = ("/docs/", "/how-we-measure", "/exports", "/readyz")
ADDRESS = "/dns4/lab.example/tcp/31330/p2p/Qm"


@pytest.fixture(autouse=True)
def _two_swarms(settings: Any) -> None:
    lab = {"name": "lab", "label": "The lab", "initial_peers": [], "relay": False, "models": [], "join_addresses": [ADDRESS]}
    settings.SEPAL_SWARMS = [{**settings.SEPAL_SWARMS[0], "label": "Everybody"}, lab]
    settings.SEPAL_JOIN_ADDRESSES = ["/dns4/first.example/tcp/31330/p2p/Qm"]
    settings.SEPAL_URL = "https://site.example"
    look("main", WHOLE)
    look("lab", HOLED)


def text(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, path
    return unescape(answer.content.decode())


def links(html: str) -> set[str]:
    """Without the menu of swarms, which leads to the other one, and without what the whole site has once."""
    below = html[html.index("</details>") : html.index('<form class="theme"')]
    return {link for link in re.findall(r'(?:href|action)="(/[^"]*)"', below) if not link.startswith(OF_THE_SITE)}


def test_advice_is_about_the_swarm_of_the_address(client: Client) -> None:
    first, lab = text(client, "/connect"), text(client, "/s/lab/connect")
    assert "every block has two or more servers" in first and "blocks 12–17 have no server" not in first
    assert "blocks 12–17 have no server" in lab
    assert f"--initial-peers {ADDRESS}" in lab and "--coordinator https://site.example/s/lab" in lab
    assert "--initial-peers /dns4/first.example" in first and "--coordinator https://site.example " in first
    assert "blocks 12–17 would" not in text(client, f"/s/lab/what-if?leaves={peer_id('nobody')}")
    assert text(client, "/connect?swarm=lab").count("blocks 12–17 have no server") == lab.count("blocks 12–17 have no server")


@pytest.mark.parametrize("page", ["connect", "what-if?add_blocks=6", "hints", "chat", "connect/watch", "", "m/tiny-hf"])
def test_links_of_a_swarms_pages_stay_in_that_swarm(client: Client, page: str) -> None:
    found = links(text(client, f"/s/lab/{page}"))
    assert len(found) > 8 and {link for link in found if not link.startswith("/s/lab/") and "swarm=lab" not in link} == set()
    for link in sorted(found - {"/s/lab/search"}):
        assert client.get(link).status_code == 200, link


def test_the_checklist_listens_to_its_own_swarm(client: Client) -> None:
    html = text(client, f"/s/lab/connect/watch?model=tiny-hf&peer={peer_id('a')}&since=1")
    assert f'data-socket="/ws/{live.page_of("lab", "m/tiny-hf")}"' in html
    led = client.get(f"/s/lab/connect?model=tiny-hf&peer={peer_id('a')}")
    assert led.status_code == 302 and led["Location"].startswith("/s/lab/connect/watch?model=tiny-hf&peer=")


def test_a_hint_is_listed_in_its_own_swarm_and_its_number_leads_there(client: Client) -> None:
    hint = Lease.objects.create(
        swarm="lab", prefix="tiny-hf", peer_id=peer_id("d"), start=12, end=18, created_at=moment(1e9), expires_at=moment(2e9)
    )
    assert str(hint.pk) in text(client, "/s/lab/hints") and str(hint.pk) not in text(client, "/hints")
    led = client.get(f"/hints/{hint.pk}")
    assert led.status_code == 302 and led["Location"] == f"/s/lab/hints/{hint.pk}"
    assert "Blocks 12–17" in text(client, led["Location"])
    assert client.get(f"/s/lab/hints/{uuid4()}").status_code == 404


@pytest.mark.parametrize("page", ["connect", "connect/watch", "what-if", "hints", "chat"])
def test_a_swarm_that_is_not_watched_has_no_pages(client: Client, page: str) -> None:
    assert client.get(f"/s/nowhere/{page}").status_code == client.get(f"/{page}?swarm=nowhere").status_code == 404


def test_each_swarm_may_have_a_gateway_of_its_own(client: Client, settings: Any) -> None:
    with fake_gateway() as gateway:
        settings.SEPAL_SWARMS = [settings.SEPAL_SWARMS[0], {**settings.SEPAL_SWARMS[1], "gateway": gateway.url}]
        said = text(client, "/s/lab/chat")
        assert "Tiny, served by volunteers" in said and 'data-stream="/s/lab/chat/stream"' in said
        assert 'href="/s/lab/m/tiny-hf"' in said
        assert "no gateway to this swarm" in text(client, "/chat")
        answer = unescape(client.post("/s/lab/chat", {"what": "say", "question": "Where?", "history": "[]"}).content.decode())
        assert f'href="/s/lab/p/{peer_id("a")}"' in answer


def test_the_list_of_swarms_names_addresses_to_join_and_gateways() -> None:
    said = '[{"name": "lab", "initial_peers": [], "join_addresses": ["/dns4/x"], "gateway": "http://127.0.0.1:1"}]'
    assert (
        swarms.read(said, {})[0] | {"gateway": "http://127.0.0.1:1", "join_addresses": ["/dns4/x"]} == swarms.read(said, {})[0]
    )
    with pytest.raises(ImproperlyConfigured, match="join_addresses"):
        swarms.read('[{"name": "lab", "join_addresses": "/dns4/x"}]', {})
