"""In front of Django: the same answer as Django's, from memory, for as long as it holds and no longer."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished, request_started
from django.db import OperationalError, close_old_connections
from django.test import Client

from monitor.api import shortcut, sight
from monitor.api.middleware import HANDOVER
from monitor.api.shortcut import Shortcut
from tests.monitor.api.conftest import reads, snapshot_id
from tests.monitor.seeding import NOW, online, seed
from tests.swarms import model

SIGNALS = (request_started, request_finished)
Answer = tuple[int, dict[str, str], bytes]


class Site:
    """Requests to a web process, and how often Django was asked to answer them."""

    def __init__(self, inner: Any) -> None:
        self.asked = 0
        self._inner = inner
        self.front = Shortcut(self._counted)

    async def _counted(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await self._inner(scope, receive, send)

    async def request(self, path: str, method: str = "GET", **headers: str) -> Answer:
        plain, _, query = path.partition("?")
        given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": plain, "raw_path": plain.encode(),
            "scheme": "http", "query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        sent: list[Any] = []

        body = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            return next(body, None) or await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.front(scope, receive, send)
        started = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], started, b"".join(part.get("body", b"") for part in sent[1:])

    def get(self, path: str, **headers: str) -> Answer:
        return async_to_sync(self.request)(path, **headers)


@pytest.fixture(autouse=True)
def _one_connection_for_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test has stored is in a transaction, and a request must not close its connection."""
    monkeypatch.setattr("channels.db.close_old_connections", lambda: None)
    # Nothing grows old by itself: some answers are kept for a second, in which a busy machine answers once.
    now = time.monotonic()
    monkeypatch.setattr(shortcut, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(shortcut, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(shortcut, "WAIT_FOR_A_LOOK_AFTER_S", 0.0)
    for signal in SIGNALS:
        signal.disconnect(close_old_connections)
    yield
    for signal in SIGNALS:
        signal.connect(close_old_connections)


@pytest.fixture
def front(site: None) -> Site:
    return Site(get_asgi_application())


def test_an_answer_is_made_once_and_is_what_django_says(front: Site, client: Client) -> None:
    plainly = {path: client.get(path) for path in reads()}
    for signal in SIGNALS:
        # The test client has connected it again.
        signal.disconnect(close_old_connections)
    for path, plain in plainly.items():
        made, kept = front.get(path), front.get(path)
        assert made == kept and kept[0] == 200 and kept[2] == plain.content, path
        for name in ("ETag", "Last-Modified", "Cache-Control", "Content-Type", "Access-Control-Allow-Origin", "Vary"):
            assert kept[1][name.lower()] == plain[name], (path, name)
        assert kept[1]["content-length"] == str(len(kept[2]))
    assert front.asked == len(reads())


def test_a_poller_gets_304_until_there_is_another_snapshot(front: Site) -> None:
    tag = front.get("/api/v1/models")[1]["etag"]
    polls = [front.get("/api/v1/models", if_none_match=tag) for _ in range(20)]
    assert {(status, body) for status, _, body in polls} == {(304, b"")} and {told["etag"] for _, told, _ in polls} == {tag}
    assert all("content-type" not in told and "content-length" not in told for _, told, _ in polls)
    assert front.asked == 1
    seed(model(2, online("n", 0, 2, at=NOW + 10)), at=NOW + 10)
    status, told, body = front.get("/api/v1/models", if_none_match=tag)
    assert status == 200 and told["etag"].startswith(f'"{snapshot_id()}f-') and b"14:13:30Z" in body


def test_who_takes_gzip_gets_it_under_a_tag_of_its_own(front: Site) -> None:
    plain, packed = front.get("/api/v1/state"), front.get("/api/v1/state", accept_encoding="br, gzip;q=0.8")
    assert packed[1]["content-encoding"] == "gzip" and gzip.decompress(packed[2]) == plain[2]
    assert packed[1]["etag"] != plain[1]["etag"] and packed[1]["content-length"] == str(len(packed[2]))
    assert "Accept-Encoding" in packed[1]["vary"] and len(packed[2]) < len(plain[2]) / 2
    assert front.get("/api/v1/state", accept_encoding="gzip", if_none_match=packed[1]["etag"])[0] == 304
    assert "content-encoding" not in front.get("/api/v1/state", accept_encoding="gzip;q=0")[1]


def test_a_snapshot_turns_stale_by_the_clock_alone(front: Site, clock: list[float]) -> None:
    assert b'"stale":false' in front.get("/api/v1/models/tiny-hf")[2]
    clock[0] = NOW + 100
    assert b'"stale":true' in front.get("/api/v1/models/tiny-hf")[2]


def test_while_the_database_is_down_what_lies_here_is_given_out(front: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    before = front.get("/api/v1/gaps")

    def down(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(sight.queries, "newest_crawls", down)
    assert front.get("/api/v1/gaps") == before
    status, told, _ = front.get("/api/v1/servers")
    assert (status, told["content-type"]) == (503, "application/problem+json") and told["retry-after"]


def test_an_answer_is_kept_no_longer_than_its_rule_says(front: Site) -> None:
    front.get("/api/v1/models")
    for earlier, asked in ((4.0, 1), (2.0, 2)):
        for answer in front.front._answers.values():
            answer.made_at -= earlier
        front.get("/api/v1/models")
        assert front.asked == asked, "leases come and go between two snapshots"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/v1/models", {"cookie": "a=b"}),
        ("/api/v1/models", {"authorization": "x"}),
        ("/livez", {}),
        ("/api/v1/nothing", {}),
    ],
)
def test_what_is_not_for_everyone_is_not_kept(front: Site, path: str, headers: dict[str, str]) -> None:
    assert front.get(path, **headers)[0] == front.get(path, **headers)[0]
    assert front.asked == 2 and not front.front._answers


def test_a_head_has_the_headers_of_a_get(front: Site) -> None:
    whole = front.get("/api/v1/gaps")
    head = async_to_sync(front.request)("/api/v1/gaps", "HEAD")
    assert (head[0], head[1], head[2]) == (200, whole[1], b"") and front.asked == 1
    assert async_to_sync(front.request)("/api/v1/servers", "HEAD")[2] == b""


def made_up(body: bytes = b"x", about: shortcut.Noted | None = None) -> Callable[..., Awaitable[None]]:
    """An application whose answers may be kept."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        scope.get(HANDOVER, []).append(about or shortcut.Noted(sight.LIVE))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"etag", b'"1"')]})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": body})

    return answer


async def test_when_an_answer_has_run_out_one_of_those_who_ask_makes_it_anew() -> None:
    front = Site(made_up())
    await front.request("/api/v1/x")
    for answer in front.front._answers.values():
        answer.made_at -= 100
    answers = await asyncio.gather(*(front.request("/api/v1/x") for _ in range(50)))
    assert front.asked == 2 and {body for _, _, body in answers} == {b"xx"}


async def test_nobody_waits_for_a_look_into_a_database_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, busy = asyncio.Event(), asyncio.Event()

    def slow(look: Any) -> Any:
        async def wait(swarm: str) -> None:
            looked.set()
            await busy.wait()

        return wait

    monkeypatch.setattr(shortcut, "database_sync_to_async", slow)
    monkeypatch.setattr(shortcut, "WAIT_FOR_A_LOOK_AFTER_S", 3.0)
    monkeypatch.setattr(sight, "known_version", lambda swarm: "1")
    front = Site(made_up(about=shortcut.Noted(sight.LIVE, "main", "1")))
    front.front._looked_at["main"] = shortcut.time.monotonic()
    await front.request("/api/v1/x")
    assert (await front.request("/api/v1/x"))[2] == b"xx" and front.asked == 1
    await looked.wait()
    busy.set()
    await asyncio.gather(*front.front._looking.values())


async def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "MAX_BYTES", 10_000)
    front = Site(made_up(b"x" * 1_000))
    for number in range(20):
        await front.request(f"/api/v1/x?{number}")
    assert len(front.front._answers) == 5 and front.front._size == 10_000
    await front.request("/api/v1/x?" + "y" * shortcut.MAX_KEY)
    assert len(front.front._answers) == 5


async def test_a_stream_goes_through_as_it_comes() -> None:
    more = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await more.wait()
        await send({"type": "http.response.body", "body": b"second"})

    sent: list[Any] = []
    arrived = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body") == b"first":
            arrived.set()

    scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "query_string": b"", "headers": []}
    going = asyncio.create_task(Shortcut(stream)(scope, None, send))  # type: ignore[arg-type]
    await arrived.wait()
    more.set()
    await going
    assert [message.get("body") for message in sent] == [None, b"first", b"second"]


@pytest.mark.parametrize("path", ["/metrics", "/api/prometheus"])
def test_a_scrape_is_kept_for_a_second_and_for_each_format(front: Site, path: str) -> None:
    first = front.get(path)
    assert first == front.get(path) and front.asked == 1 and first[1]["cache-control"] == "no-cache"
    packed = front.get(path, accept_encoding="gzip")
    assert gzip.decompress(packed[2]) == first[2] and front.asked == 1
    other = front.get(path, accept="application/openmetrics-text;version=1.0.0")
    assert other[2].endswith(b"# EOF\n") and not first[2].endswith(b"# EOF\n") and front.asked == 2
    assert {"Accept", "Accept-Encoding"} <= set(first[1]["vary"].split(", "))
    for answer in front.front._answers.values():
        answer.made_at -= 1.001
    front.get(path)
    assert front.asked == 3, "what counts without a crawl is not older than this"
    seed(model(2, online("n", 0, 2, at=NOW + 10)), at=NOW + 10)
    assert b'servers_num{model="tiny-hf"} 1.0' in front.get(path)[2]
    assert front.get("/metrics?swarm=nobody")[0] == 404
