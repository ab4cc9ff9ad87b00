"""In front of Django: gives out again the bytes of an answer that still holds, without making it anew.

An answer holds until the swarm is to be shown differently (another crawl, a change of belief) and no longer than its rule
says. Once a second a look into the database tells whether there has been another crawl; while the database is down, what
lies here stays as true as its `observed_at`, and turns stale by the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from channels.db import database_sync_to_async
from django.db import Error as DatabaseError

from monitor.api import sight
from monitor.api.caching import Noted, matches
from monitor.api.middleware import HANDOVER

MAX_BYTES = 64 * 1024 * 1024
"""All answers together; of 500 servers on 10 models the largest has 1 MB."""
MAX_ANSWERS = 2_000
MAX_KEY = 1_000
"""Characters of an address with its query; longer ones are answered, and not kept."""
LOOK_EVERY_S = 1.0
WAIT_FOR_A_LOOK_AFTER_S = 3.0
METRICS = "/metrics"
LEAST_TO_COMPRESS = 1_400
"""Bytes that travel in one packet anyway."""

Scope = dict[str, Any]
Message = Mapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


@dataclass
class _Answer:
    about: Noted
    headers: Headers
    body: bytes
    etag: str
    packed: bytes | None = None
    made_at: float = field(default_factory=lambda: time.monotonic())
    renewing: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Shortcut:
    """An ASGI application around `inner`."""

    inner: Application
    _answers: OrderedDict[tuple[str, ...], _Answer] = field(default_factory=OrderedDict)
    _size: int = 0
    _looked_at: dict[str, float] = field(default_factory=dict)
    _looking: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = dict(scope["headers"])
        key = _key(scope, asked)
        answer = self._answers.get(key) if key else None
        if key is None or (answer is None and scope["method"] == "HEAD"):
            await self.inner(scope, receive, send)
        elif answer is None:
            await self._make(key, scope, receive, send)
        else:
            # Everybody asks at once after a crawl, and one is enough to make the answer that all of them want.
            async with answer.renewing:
                holds = await self._holds(answer := self._answers.get(key, answer))
                if not holds and scope["method"] == "GET":
                    await self._make(key, scope, receive, send)
                    return
            if holds:
                self._answers.move_to_end(key)
                await _give(answer, scope["method"], asked, send)
            else:
                await self.inner(scope, receive, send)

    async def _holds(self, answer: _Answer) -> bool:
        if time.monotonic() - answer.made_at > answer.about.rule.kept_s:
            return False
        if not answer.about.swarm:
            return True
        await self._look(answer.about.swarm)
        return sight.known_version(answer.about.swarm) == answer.about.version

    async def _look(self, swarm: str) -> None:
        """Whoever asks just then does not wait for it, unless nobody has looked for long: a database that is busy would
        otherwise hold up all of them, once a second."""
        age_s = time.monotonic() - self._looked_at.get(swarm, -WAIT_FOR_A_LOOK_AFTER_S)
        if age_s < LOOK_EVERY_S:
            return
        if swarm not in self._looking:
            self._looking[swarm] = asyncio.create_task(self._look_now(swarm))
        if age_s >= WAIT_FOR_A_LOOK_AFTER_S:
            await asyncio.shield(self._looking[swarm])

    async def _look_now(self, swarm: str) -> None:
        try:
            # Without a database there is no other crawl either, as far as anybody can tell.
            with contextlib.suppress(DatabaseError):
                await database_sync_to_async(sight.current)(swarm)
            self._looked_at[swarm] = time.monotonic()
        finally:
            del self._looking[swarm]

    async def _make(self, key: tuple[str, ...], scope: Scope, receive: Receive, send: Send) -> None:
        """Lets Django answer, and keeps the answer where it says that it may be kept. Whatever else comes is passed on."""
        noted: list[Noted] = []
        started: list[Message] = []
        parts: list[bytes] = []

        async def catch(message: Message) -> None:
            if not noted:
                await send(message)
            elif message["type"] == "http.response.start":
                started.append(message)
            else:
                parts.append(message.get("body", b""))

        await self.inner({**scope, HANDOVER: noted}, receive, catch)
        if started:
            headers = [(name.lower(), value) for name, value in started[0]["headers"]]
            answer = _Answer(noted[0], headers, b"".join(parts), dict(headers)[b"etag"].decode("latin-1"))
            self._keep(key, answer)
            await _give(answer, scope["method"], dict(scope["headers"]), send)

    def _keep(self, key: tuple[str, ...], answer: _Answer) -> None:
        before = self._answers.pop(key, None)
        if before is not None:
            self._size -= len(before.body)
            answer.renewing = before.renewing
        self._answers[key] = answer
        self._size += len(answer.body)
        while self._size > MAX_BYTES or len(self._answers) > MAX_ANSWERS:
            _, oldest = self._answers.popitem(last=False)
            self._size -= len(oldest.body)


def _key(scope: Scope, asked: dict[bytes, bytes]) -> tuple[str, ...] | None:
    """None for what is never kept: other addresses, writes, whatever may be meant for one caller only."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return None
    if not scope["path"].startswith("/api/") and scope["path"] != METRICS:
        return None
    if b"cookie" in asked or b"authorization" in asked:
        return None
    told = (asked.get(b"host", b""), scope["query_string"], asked.get(b"accept", b""))
    key = (scope["path"], *(value.decode("latin-1") for value in told))
    return key if sum(map(len, key)) <= MAX_KEY else None


async def _give(answer: _Answer, method: str, asked: dict[bytes, bytes], send: Send) -> None:
    headers, body, etag = answer.headers, answer.body, answer.etag
    if len(body) >= LEAST_TO_COMPRESS and _takes_gzip(asked.get(b"accept-encoding", b"").decode("latin-1")):
        if answer.packed is None:
            answer.packed = await asyncio.to_thread(gzip.compress, body, 6, mtime=0)
        body, etag = answer.packed, f'{etag[:-1]}-gz"'
        headers = [(b"content-encoding", b"gzip"), *headers]
    known = matches(asked.get(b"if-none-match", b"").decode("latin-1"), etag)
    of_the_body = (b"content-length", b"content-type", b"content-encoding") if known else (b"content-length",)
    told = [(name, value) for name, value in headers if name not in of_the_body and name != b"etag"]
    told.append((b"etag", etag.encode("latin-1")))
    if not known:
        told.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": 304 if known else 200, "headers": told})
    await send({"type": "http.response.body", "body": b"" if known or method == "HEAD" else body})


def _takes_gzip(accept: str) -> bool:
    for part in accept.split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == "gzip":
            return weight not in ("0", "0.0", "0.00", "0.000")
    return False
