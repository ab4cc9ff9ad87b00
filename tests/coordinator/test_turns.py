"""A crowd of servers that ask at once: they wait in front of Django, and who would wait too long is told to come back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async

from coordinator.problems import BUSY_RETRY_S, refuse
from coordinator.turns import SEATS, Turns

HINT, NEEDED = ("POST", "/api/v1/hint"), ("GET", "/api/v1/needed")
ACCEPT = ("POST", "/s/other/api/v1/lease/0a1b-2c/accept")


class Site:
    """Answers each request once `open` is set, in a thread as Django does."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.threads: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.begun.put(scope["path"])
        await self.open.wait()
        async with ThreadSensitiveContext():
            self.threads.append(await sync_to_async(threading.get_ident)())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Answer:
    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.headers |= dict(message.get("headers", []))
        self.body += message.get("body", b"")


async def ask(turns: Turns, request: tuple[str, str]) -> Answer:
    method, path = request
    answer = Answer()

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    await turns({"type": "http", "method": method, "path": path}, receive, answer.send)
    return answer


async def fill(turns: Turns, site: Site) -> list[asyncio.Task[Answer]]:
    """Questions on all seats."""
    asked = [asyncio.create_task(ask(turns, HINT)) for _ in range(SEATS)]
    for _ in asked:
        await site.begun.get()
    return asked


async def test_whose_turn_does_not_come_is_told_to_come_back_and_nobody_works_for_it() -> None:
    site = Site()
    turns = Turns(site, refuse, patience_s=0.01)
    first = await fill(turns, site)
    late = await ask(turns, HINT)
    assert (late.status, late.headers[b"retry-after"]) == (503, str(BUSY_RETRY_S).encode())
    assert json.loads(late.body)["type"].endswith("/busy")
    assert late.headers[b"content-length"] == str(len(late.body)).encode()
    site.open.set()
    assert [(await one).status for one in first] == [200] * SEATS
    assert site.begun.empty(), "what was refused has never begun"
    assert (await ask(turns, HINT)).status == 200, "the seats are free again"


async def test_who_waits_in_time_is_answered_in_the_order_of_coming() -> None:
    site = Site()
    turns = Turns(site, refuse, patience_s=60.0)
    first = await fill(turns, site)
    paths = [f"/s/n{number}/api/v1/hint" for number in range(5)]
    waiting = [asyncio.create_task(ask(turns, ("POST", path))) for path in paths]
    site.open.set()
    assert {(await one).status for one in [*first, *waiting]} == {200}
    assert [site.begun.get_nowait() for _ in paths] == paths


async def test_a_crowd_takes_as_many_threads_as_there_are_seats_and_each_is_used_again() -> None:
    """A thread of Django's has a connection to Postgres."""
    site = Site()
    site.open.set()
    turns = Turns(site, refuse, patience_s=60.0)
    await asyncio.gather(*(ask(turns, HINT) for _ in range(40)))
    assert len(site.threads) == 40 and len(set(site.threads)) <= SEATS


@pytest.mark.parametrize("request_", [NEEDED, ACCEPT, ("POST", "/api/v1/hint/nonce"), ("GET", "/"), ("POST", "/admin/login/")])
async def test_others_do_not_wait_for_the_questions(request_: tuple[str, str]) -> None:
    site = Site()
    turns = Turns(site, refuse, patience_s=0.01)
    crowd = await fill(turns, site)
    other = asyncio.create_task(ask(turns, request_))
    assert await site.begun.get() == request_[1]
    site.open.set()
    assert {(await one).status for one in [other, *crowd]} == {200}


async def test_more_than_could_be_answered_in_time_do_not_even_wait() -> None:
    site = Site()
    turns = Turns(site, refuse, patience_s=60.0, most_waiting=1)
    crowd = await fill(turns, site)
    waiting = asyncio.create_task(ask(turns, HINT))
    await asyncio.sleep(0)
    assert (await ask(turns, HINT)).status == 503
    site.open.set()
    assert {(await one).status for one in [waiting, *crowd]} == {200}


@pytest.mark.parametrize("broken", [ValueError, asyncio.CancelledError])
async def test_a_seat_is_given_back_whatever_happens(broken: Callable[[], BaseException]) -> None:
    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        raise broken()

    turns = Turns(breaks, refuse, seats=1, patience_s=0.01)
    for _ in range(3):
        with pytest.raises(type(broken())):
            await ask(turns, HINT)
