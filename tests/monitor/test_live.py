"""A change reaches the open page: through the real Redis layer, rendered once, and never more often than every 2 s."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from celery import current_app
from django.core.cache import cache
from django.test import Client
from django.utils.html import escape

from monitor import live, tasks
from monitor.crawl import CrawlReport
from monitor.store import store
from tests.monitor.seeding import NOW, SWARM, failure, online, report, seed
from tests.swarms import model
from tests.tabs import Tab

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What was sent to Celery: the task's name and its countdown."""
    sent: list[tuple[str, Any]] = []
    app = current_app._get_current_object()
    monkeypatch.setattr(app, "send_task", lambda name, countdown=0, **_: sent.append((name, countdown)))
    return sent


async def test_an_open_page_gets_the_new_fragment_and_other_pages_theirs() -> None:
    await sync_to_async(seed)(model(2, online("a", 0, 1)))
    tabs = [Tab(path) for path in ("/ws/m/tiny-hf", "/ws/overview")]
    for tab in tabs:
        assert await tab.connect()
    await sync_to_async(live.push)(SWARM)
    for tab in tabs:
        message = json.loads(await tab.text())
        assert "block 1" in message["title"] and "block 1" in message["parts"]["top"]
        assert set(message["parts"]) <= set(message["digests"])
        await tab.disconnect()


async def test_other_paths_and_foreign_sites_get_no_socket() -> None:
    with pytest.raises(ValueError, match="No route"):
        await Tab("/ws/other").connect()
    foreign = Tab("/ws/overview", headers=[(b"origin", b"http://evil.example")])
    assert not await foreign.connect()


async def test_without_redis_the_socket_closes_with_try_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from channels_redis.pubsub import RedisPubSubLoopLayer

    async def down(*_: object) -> None:
        raise OSError("no Redis")

    monkeypatch.setattr(RedisPubSubLoopLayer, "group_add", down)
    tab = Tab("/ws/overview")
    assert await tab.connect()
    assert await tab.hear() == {"type": "websocket.close", "code": 1013}


async def test_other_pages_hear_only_that_there_is_news() -> None:
    await sync_to_async(seed)(model(2, online("a", 0, 1)))
    tab = Tab("/ws/changes")
    assert await tab.connect()
    await sync_to_async(live.push)(SWARM)
    assert json.loads(await tab.text()) == {"changed": True}
    await tab.disconnect()


def test_what_is_pushed_is_what_the_page_was_loaded_with(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.queries.time, "time", lambda: NOW)
    seed(model(2, online("a", 0, 2)))
    whole = client.get("/m/tiny-hf").content.decode()
    fragment = client.get("/m/tiny-hf?fragment=all").json()
    assert fragment["title"].startswith("! tiny-hf runs") and escape(fragment["title"]) in whole
    for name, html in fragment["parts"].items():
        assert f'id="p-{name}" data-digest="{fragment["digests"][name]}"' in whole and html in whole


def test_only_what_changed_is_pushed_and_what_all_should_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = NOW
    monkeypatch.setattr(tasks.queries.time, "time", lambda: now)
    seed(model(3, online("a", 0, 3), online("b", 0, 3)))
    before = live.render("m/tiny-hf", live.watch(SWARM))
    assert set(live.changes(before, {})["parts"]) == set(before.digests), "nothing was sent yet"
    assert live.changes(before, before.digests)["parts"] == {}
    now = NOW + 30
    seed(model(3, online("a", 0, 3, at=now), online("b", 0, 2, at=now)), at=now)
    after = live.changes(live.render("m/tiny-hf", live.watch(SWARM)), before.digests)
    assert {"top", "blocks", "gaps"} <= set(after["parts"]) and not {"days", "dropped"} & set(after["parts"])
    assert set(after["digests"]) == set(before.digests)


def test_time_that_passes_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now = NOW + 1
    monkeypatch.setattr(tasks.queries.time, "time", lambda: now)
    seed(model(3, online("a", 0, 3)))
    before = live.render("m/tiny-hf", live.watch(SWARM))
    now = NOW + 20
    after = live.render("m/tiny-hf", live.watch(SWARM))
    assert before.parts[0].html != after.parts[0].html and before.digests == after.digests and before.etag == after.etag


def test_a_message_stays_small_and_the_rest_is_fetched() -> None:
    servers = [online(f"s{n}", n % 300, n % 300 + 40) for n in range(450)]
    seed(model(340, *sorted(servers, key=lambda s: (s.span, s.peer_id))))
    rendered = live.render("m/tiny-hf", live.watch(SWARM))
    message = live.changes(rendered, {})
    assert len(json.dumps(message)) <= live.MESSAGE_LIMIT
    assert "top" in message["parts"] and "blocks" not in message["parts"] and "blocks" in message["digests"]


def test_a_page_that_polls_gets_what_it_lacks_and_304_where_it_lacks_nothing(client: Client) -> None:
    seed(model(2, online("a", 0, 2)))
    first = client.get("/m/tiny-hf?fragment=all")
    again = client.get("/m/tiny-hf?fragment=all", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert set(client.get("/m/tiny-hf?fragment=gaps,heat").json()["parts"]) == {"gaps", "heat"}
    seed(model(2, online("a", 0, 2), online("b", 0, 1)), at=NOW + 30)
    assert client.get("/m/tiny-hf?fragment=all", headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_many_requests_end_in_one_push_and_one_during_it_in_another(queued: list[tuple[str, Any]]) -> None:
    seed(model(1))
    for _ in range(5):
        live.request_push(SWARM)
    assert queued == [("monitor.tasks.push", 0)]
    live.push(SWARM)
    for _ in range(5):
        live.request_push(SWARM)
    assert queued == [("monitor.tasks.push", 0), ("monitor.tasks.push", live.PUSH_GAP_S)]


def test_asking_for_a_push_never_fails_its_caller(settings) -> None:  # type: ignore[no-untyped-def]
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    live.request_push(SWARM)


class MadeUpCrawler:
    def __init__(self, answer: CrawlReport | None) -> None:
        self.answer = answer

    def crawl(self, *_: object) -> CrawlReport | None:
        return self.answer

    def crawl_elsewhere(self, *_: object) -> CrawlReport | None:
        return None


def test_a_stored_crawl_asks_for_a_push_after_its_commit(queued: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_crawler", lambda swarm: MadeUpCrawler(report(NOW, model(1))))
    tasks.crawl()
    assert queued == [("monitor.tasks.push", 0)]
    assert live.watch(SWARM, NOW).published is not None


def test_a_crawl_beside_a_running_one_does_nothing(queued: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_crawler", lambda swarm: MadeUpCrawler(None))
    tasks.crawl()
    assert queued == [] and live.watch(SWARM, NOW).last_crawl is None


def test_a_page_that_ages_is_pushed_once_when_it_does(queued: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    now = NOW
    monkeypatch.setattr(tasks.queries.time, "time", lambda: now)
    seed(model(1, online("a", 0, 1)))
    tasks.watch_freshness()
    tasks.watch_freshness()
    assert len(queued) == 1
    cache.delete(f"push.pending.{SWARM}")
    now = NOW + 91
    tasks.watch_freshness()
    tasks.watch_freshness()
    assert len(queued) == 2
    cache.delete(f"push.pending.{SWARM}")
    store(failure(NOW + 92))
    tasks.watch_freshness()
    assert len(queued) == 3, "blind is another state than late"
