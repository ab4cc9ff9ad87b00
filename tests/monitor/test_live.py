"""A change reaches the open page: through the real Redis layer, rendered once, and never more often than every 2 s."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from celery import current_app
from channels.testing import WebsocketCommunicator
from django.core.cache import cache
from django.test import Client

from coordinator.asgi import application
from monitor import live, tasks
from monitor.crawl import CrawlReport
from monitor.store import store
from tests.monitor.seeding import NOW, SWARM, failure, online, report, seed
from tests.swarms import model

pytestmark = pytest.mark.django_db(transaction=True)

ORIGIN = [(b"origin", b"http://127.0.0.1"), (b"host", b"127.0.0.1")]


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
    tabs = [WebsocketCommunicator(application, path, headers=ORIGIN) for path in ("/ws/m/tiny-hf", "/ws/overview")]
    for tab in tabs:
        assert (await tab.connect())[0]
    await sync_to_async(live.push)(SWARM)
    for tab in tabs:
        html = await tab.receive_from(timeout=5)
        assert html.startswith("<title>") and "block 1" in html
        await tab.disconnect()


async def test_other_paths_and_foreign_sites_get_no_socket() -> None:
    with pytest.raises(ValueError, match="No route"):
        await WebsocketCommunicator(application, "/ws/other", headers=ORIGIN).connect()
    foreign = WebsocketCommunicator(application, "/ws/overview", headers=[(b"origin", b"http://evil.example")])
    assert not (await foreign.connect())[0]


async def test_without_redis_the_socket_closes_with_try_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from channels_redis.pubsub import RedisPubSubLoopLayer

    async def down(*_: object) -> None:
        raise OSError("no Redis")

    monkeypatch.setattr(RedisPubSubLoopLayer, "group_add", down)
    tab = WebsocketCommunicator(application, "/ws/overview", headers=ORIGIN)
    assert (await tab.connect())[0]
    assert await tab.receive_output(timeout=5) == {"type": "websocket.close", "code": 1013}


def test_what_is_pushed_is_what_the_page_was_loaded_with(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.queries.time, "time", lambda: NOW)
    seed(model(2, online("a", 0, 2)))
    whole = client.get("/m/tiny-hf").content.decode()
    fragment = client.get("/m/tiny-hf?fragment=1").content.decode()
    body = fragment.split("</title>\n", 1)[1]
    assert body.strip() in whole and fragment.startswith("<title>! tiny-hf runs")
    assert len(fragment) < 20_000


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

    def crawl(self, swarm: str, known: object, previous: object = None) -> CrawlReport | None:
        return self.answer

    def crawl_elsewhere(self, swarm: str, known: object, previous: object = None) -> CrawlReport | None:
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
