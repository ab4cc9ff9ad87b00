"""Event streams end as soon as the process is told to stop: their listeners come back by themselves, and nothing would end them
otherwise. Whatever else is being answered may finish. Knows ASGI, and nothing of what is streamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Message = Mapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

EVENT_STREAM = b"text/event-stream"


class Closing:
    """An ASGI application around `inner`, which answers HTTP."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner
        self._streams: set[_Stream] = set()
        self._closed = False

    def close(self) -> None:
        """In the event loop; streams that begin afterwards end at once."""
        self._closed = True
        for stream in self._streams:
            stream.over.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = _Stream(receive, send)
        self._streams.add(stream)
        if self._closed:
            stream.over.set()
        try:
            await self._inner(scope, stream.receive, stream.send)
            await stream.finish()
        finally:
            self._streams.discard(stream)


class _Stream:
    """One answer, which may turn out to be a stream; until it does, `over` changes nothing."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.over = asyncio.Event()
        self._receive, self._send = receive, send
        self._streaming = asyncio.Event()
        self._open = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            self._open = True
            if any(kind.startswith(EVENT_STREAM) for kind in kinds):
                self._streaming.set()
        elif not message.get("more_body", False):
            self._open = False
        await self._send(message)

    async def receive(self) -> Message:
        """To whoever makes the stream, the end looks as if its listener had left."""
        heard = asyncio.ensure_future(self._receive())
        ended = asyncio.ensure_future(self._ended())
        try:
            await asyncio.wait({heard, ended}, return_when=asyncio.FIRST_COMPLETED)
            return heard.result() if heard.done() else {"type": "http.disconnect"}
        finally:
            heard.cancel()
            ended.cancel()

    async def finish(self) -> None:
        """A stream that was ended has an end like any other."""
        if self._open and self.over.is_set():
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _ended(self) -> None:
        await self._streaming.wait()
        await self.over.wait()
