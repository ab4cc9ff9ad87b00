"""Several swarms on one site, told apart on every page, socket and address; addresses that name none mean the first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from monitor import live, queries, tasks
from monitor.store import store
from monitor.swarms import WatchedSwarm, configured, named
from tests.monitor.seeding import NOW, SWARM, online, report
from tests.monitor.test_live import MadeUpCrawler
from tests.swarms import model
from tests.tabs import Tab

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _two_swarms(settings, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    other = {"name": "lab", "label": "The lab", "initial_peers": ["/ip4/…"], "relay": True, "models": ["_mine"]}
    settings.SEPAL_SWARMS = [{**settings.SEPAL_SWARMS[0], "label": "Everybody"}, other]
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    store(report(NOW, model(1, online("a", 0, 1))))
    store(report(NOW, replace(model(2, online("b", 0, 1)), prefix="lab-hf"), swarm="lab"))


def test_the_swarms_are_those_that_are_configured() -> None:
    assert [swarm.name for swarm in configured()] == [SWARM, "lab"]
    assert named("lab") == WatchedSwarm("lab", "The lab", ("/ip4/…",), True, ("_mine",))
    assert named("") == configured()[0] and named("other") is None


def test_each_swarm_has_pages_of_its_own_that_link_to_the_others(client: Client) -> None:
    first, lab = client.get("/").content.decode(), client.get("/s/lab/").content.decode()
    assert "tiny-hf" in first and "lab-hf" not in first and 'href="/s/lab/">The lab</a>' in first
    assert "lab-hf" in lab and "tiny-hf" not in lab and 'href="/">Everybody</a>' in lab
    assert 'href="/s/lab/m/lab-hf"' in lab and 'href="/api/v1/models?swarm=lab"' in lab
    one = client.get("/s/lab/m/lab-hf").content.decode()
    assert "cannot run: block 1 has no server" in one and 'data-socket="/ws/s/lab/m/lab-hf"' in one
    assert 'href="/api/v1/models/lab-hf?swarm=lab"' in one
    assert client.get("/m/lab-hf").status_code == 404 and client.get("/s/nowhere/").status_code == 404


def test_the_json_and_the_metrics_are_of_the_swarm_that_is_asked_for(client: Client) -> None:
    assert [item["prefix"] for item in client.get("/api/v1/models?swarm=lab").json()["items"]] == ["lab-hf"]
    assert client.get("/api/v1/models/lab-hf?swarm=lab").json()["swarm"] == "lab"
    assert client.get("/api/v1/models/lab-hf").status_code == client.get("/api/v1/models?swarm=no").status_code == 404
    assert client.get("/api/v1/state?swarm=lab").json()["model_reports"][0]["dht_prefix"] == "lab-hf"
    assert b'model="lab-hf"' in client.get("/metrics?swarm=lab").content
    assert [swarm["page"] for swarm in client.get("/api/v1/swarms").json()["items"]] == ["/", "/s/lab/"]


async def test_a_push_reaches_the_pages_of_its_swarm_only() -> None:
    mine = Tab("/ws/s/lab/overview")
    other = Tab("/ws/overview")
    for tab in (mine, other):
        assert await tab.connect()
    await sync_to_async(live.push)("lab")
    assert "lab-hf" in await mine.text()
    assert await other.nothing()
    for tab in (mine, other):
        await tab.disconnect()


def test_each_swarm_is_crawled_by_its_own_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def crawler(swarm: WatchedSwarm) -> MadeUpCrawler:
        asked.append(swarm.name)
        return MadeUpCrawler(None)

    monkeypatch.setattr(tasks, "_crawler", crawler)
    for name in ("", "lab", "gone from the settings"):
        tasks.crawl(name)
    assert asked == [SWARM, "lab"]
