"""The stream through the real ASGI application, the real Redis layer and the real database."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.db import connection
from django.test import AsyncClient, Client

from coordinator.asgi import application
from monitor import queries
from monitor.feeds import stream, views
from monitor.feeds.models import Event
from monitor.feeds.publish import publish
from monitor.feeds.slots import Full, Slots
from tests.monitor.seeding import NOW, SWARM, seed
from tests.monitor.test_incidents import torn, whole

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [NOW]
    monkeypatch.setattr(queries.time, "time", lambda: moment[0])
    return moment


class Listener:
    """A connection as a web server makes it, and what came over it, event by event."""

    def __init__(self, query: str = "", last: str = "") -> None:
        headers = [(b"host", b"127.0.0.1"), *([(b"last-event-id", last.encode())] if last else [])]
        scope = {
            "type": "http", "method": "GET", "path": "/api/v1/events", "raw_path": b"/api/v1/events",
            "query_string": query.encode(), "headers": headers, "client": ("127.0.0.1", 5), "http_version": "1.1",
        }  # fmt: skip
        self._connection = ApplicationCommunicator(application, scope)
        self._text = ""
        self.start: dict[str, Any] = {}

    async def open(self) -> None:
        await self._connection.send_input({"type": "http.request", "body": b""})
        self.start = await self._connection.receive_output(timeout=60)

    async def next(self) -> str:
        """What stands before the next empty line."""
        while "\n\n" not in self._text:
            self._text += (await self._connection.receive_output(timeout=60))["body"].decode()
        said, self._text = self._text.split("\n\n", 1)
        return said

    async def event(self) -> tuple[int, str, Any]:
        lines = dict(line.split(": ", 1) for line in (await self.next()).splitlines())
        return int(lines["id"]), lines["event"], json.loads(lines["data"])

    async def leave(self) -> None:
        await self._connection.send_input({"type": "http.disconnect"})
        await self._connection.wait(timeout=60)


@contextlib.asynccontextmanager
async def listening(query: str = "", last: str = "") -> AsyncIterator[Listener]:
    listener = Listener(query, last)
    await listener.open()
    assert await listener.next() == "retry: 5000"
    try:
        yield listener
    finally:
        await listener.leave()


@sync_to_async
def crawled(at: list[float], when: float, make: Any) -> None:
    seed(make(when), at=when)
    at[0] = when
    publish(SWARM)
    connection.close()


async def test_a_listener_is_told_the_state_and_then_what_happens(at: list[float]) -> None:
    await crawled(at, NOW, whole)
    async with listening() as listener:
        headers = dict(listener.start["headers"])
        assert headers[b"Content-Type"].startswith(b"text/event-stream") and headers[b"X-Accel-Buffering"] == b"no"
        number, kind, data = await listener.event()
        assert kind == "snapshot" and data["models"][0]["verdict"] == "complete" and not data["stale"]
        await crawled(at, NOW + 30, torn)
        told = [await listener.event() for _ in range(3)]
        assert [kind for _, kind, _ in told] == ["snapshot", "block", "block"]
        assert [n for n, _, _ in told] == sorted(n for n, _, _ in told) and told[0][0] > number


async def test_who_was_away_is_told_exactly_what_happened_meanwhile(at: list[float]) -> None:
    await crawled(at, NOW, whole)
    async with listening() as listener:
        last, _, _ = await listener.event()
    await crawled(at, NOW + 30, torn)
    await crawled(at, NOW + 60, torn)
    async with listening(last=str(last)) as again:
        missed = [await again.event() for _ in range(5)]
    assert [(number, kind) for number, kind, _ in missed] == await stored_after(last)


@sync_to_async
def stored_after(last: int) -> list[tuple[int, str]]:
    found = list(Event.objects.filter(id__gt=last).order_by("id").values_list("id", "kind"))
    connection.close()
    return found


@pytest.mark.parametrize("last", ["999999", "0"])
async def test_who_names_an_event_that_is_not_kept_is_told_the_state_and_that_it_is_no_continuation(
    at: list[float], last: str
) -> None:
    await crawled(at, NOW, whole)
    async with listening(query=f"last_event_id={last}") as listener:
        _, kind, data = await listener.event()
        assert kind == "snapshot" and data.get("resumed", False) is False


async def test_silence_is_broken_by_a_comment_and_what_redis_lost_is_found_then(
    at: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream.Stream.__init__, "__defaults__", (0.05,))
    await crawled(at, NOW, whole)
    async with listening() as listener:
        await listener.event()
        assert await listener.next() == ": still here"
        monkeypatch.setattr("monitor.feeds.publish._wake", lambda *_: None)
        await crawled(at, NOW + 30, torn)
        said = ": still here"
        while said == ": still here":
            said = await listener.next()
        assert "event: snapshot" in said


async def test_without_redis_a_listener_still_gets_everything(at: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    from channels_redis.pubsub import RedisPubSubLoopLayer

    async def down(*_: object) -> None:
        raise OSError("no Redis")

    monkeypatch.setattr(RedisPubSubLoopLayer, "group_add", down)
    monkeypatch.setattr(stream.Stream.__init__, "__defaults__", (0.05,))
    await crawled(at, NOW, whole)
    async with listening() as listener:
        await listener.event()
        await crawled(at, NOW + 30, torn)
        said = ": still here"
        while said == ": still here":
            said = await listener.next()
        assert "event: snapshot" in said


async def test_a_place_is_free_again_as_soon_as_its_listener_has_left(at: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "slots", Slots(in_all=1))
    await crawled(at, NOW, whole)
    async with listening() as listener:
        await listener.event()
        refused = await AsyncClient().get("/api/v1/events")
        assert refused.status_code == 429 and refused["Retry-After"] == "60"
        assert refused["Content-Type"] == "application/problem+json" and refused.json()["status"] == 429
    assert views.slots.taken == 0
    async with listening() as another:
        await another.event()


async def test_a_crowd_of_listeners_leaves_nothing_behind(at: list[float]) -> None:
    await crawled(at, NOW, whole)
    before = len(asyncio.all_tasks())
    for _ in range(5):
        async with listening() as listener:
            await listener.event()
    for _ in range(100):
        if len(asyncio.all_tasks()) <= before + 1:  # The layer's own reader stays.
            break
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) <= before + 1


def test_one_address_does_not_take_all_places() -> None:
    slots = Slots(in_all=3, for_one=2)
    free = slots.take("a")
    slots.take("a")
    with pytest.raises(Full, match="your address"):
        slots.take("a")
    slots.take("b")
    with pytest.raises(Full, match="this process"):
        slots.take("c")
    free()
    free()
    assert slots.taken == 2


def test_other_methods_and_other_swarms_are_refused_in_words() -> None:
    answers = [Client().post("/api/v1/events"), Client().get("/api/v1/events?swarm=nobody")]
    assert [answer.status_code for answer in answers] == [405, 404]
    assert all(answer["Content-Type"] == "application/problem+json" for answer in answers)
    assert Client().head("/api/v1/events")["Content-Type"].startswith("text/event-stream") and views.slots.taken == 0
