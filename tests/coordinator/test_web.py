"""How the site is served: what uvicorn refuses, hides and writes down, and how the process ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_now

from coordinator import web
from coordinator.closing import Closing
from tests.monitor.seeding import online, seed
from tests.sites import site_process
from tests.swarms import model


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers who asks, how; takes every socket."""
    if scope["type"] == "http":
        told = f"{scope['client'][0]} {scope['scheme']}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(told)).encode())]})
        await send({"type": "http.response.body", "body": told})
        return
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": "heard"})


@contextlib.asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(web, "application", echo)
    listening = asyncio.Event()

    class Server(web.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            listening.set()

    server = Server(web.config("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve())
    await listening.wait()
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


async def asked(port: int, headers: str = "", end: str = "\r\n") -> tuple[str, bytes]:
    """Head and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}{end}".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.decode().lower(), body


async def test_the_server_believes_no_header_about_its_caller_and_does_not_name_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as port:
        head, body = await asked(port, "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n")
    assert head.startswith("http/1.1 200") and body == b"127.0.0.1 http"
    assert "server:" not in head and "uvicorn" not in head


async def test_endless_headers_and_large_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as port:
        head, _ = await asked(port, f"X-Long: {'x' * web.MAX_HEAD}", end="")
        assert head.startswith("http/1.1 400")
        async with connect(f"ws://127.0.0.1:{port}/") as tab:
            await tab.send("x" * web.MAX_MESSAGE)
            assert await tab.recv() == "heard"
            await tab.send("x" * (web.MAX_MESSAGE + 1))
            with pytest.raises(ConnectionClosed):
                await tab.recv()
            assert tab.close_code == 1009


async def test_lines_of_requests_do_not_hold_the_callers_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).addFilter(web.without_caller)
    try:
        async with served(monkeypatch) as port:
            await asked(port)
            async with connect(f"ws://127.0.0.1:{port}/ws/x"):
                pass
    finally:
        for name in ("uvicorn.access", "uvicorn.error"):
            logging.getLogger(name).removeFilter(web.without_caller)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")]
    assert '"GET / HTTP/1.1" 200' in said and '"WebSocket /ws/x" [accepted]' in said
    assert not any("127.0.0.1" in line for line in said if '"' in line)


async def test_only_streams_are_ended_and_they_end_in_order() -> None:
    ended: list[str] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", scope["kind"])]})
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        await receive()
        ended.append(scope["kind"].decode())

    closing = Closing(inner)
    said: asyncio.Queue[Any] = asyncio.Queue()

    async def nothing() -> Any:
        await asyncio.Event().wait()

    kinds = (b"text/event-stream; charset=utf-8", b"text/html")
    answering = [asyncio.create_task(closing({"type": "http", "kind": kind}, nothing, said.put)) for kind in kinds]
    for _ in range(4):
        await said.get()
    closing.close()
    await answering[0]
    assert ended == ["text/event-stream; charset=utf-8"] and not answering[1].done()
    assert said.get_nowait() == {"type": "http.response.body", "body": b"", "more_body": False}
    await closing({"type": "http", "kind": kinds[0]}, nothing, said.put)
    assert len(ended) == 2, "who comes too late is not kept either"
    answering[1].cancel()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_told_to_stop_it_ends_what_is_open_and_does_not_wait_for_anyone() -> None:
    seed(model(2, online("a", 0, 2, at=time.time())), at=time.time())
    with site_process() as site:
        where = urlsplit(site.address).netloc
        with pytest.raises(InvalidStatus) as refused:
            connect_now(f"ws://{where}/ws/overview", origin="http://evil.example")
        assert refused.value.response.status_code == 403
        kept, listener = http.client.HTTPConnection(where, timeout=60), http.client.HTTPConnection(where, timeout=60)
        kept.request("GET", "/livez")
        assert kept.getresponse().read() and kept.sock is not None, "an idle connection that the caller keeps"
        listener.request("GET", "/api/v1/events")
        stream = listener.getresponse()
        while stream.readline() != b"event: snapshot\n":
            pass
        with connect_now(f"ws://{where}/ws/overview", origin=site.address) as tab:
            site.stop()
            with pytest.raises(ConnectionClosed):
                tab.recv(20)
            assert tab.close_code == 1012, "the site comes back: connect again"
        assert stream.read().startswith(b"data: "), "an end, and no broken connection"
    log = "".join(site.said)
    assert '"GET /livez HTTP/1.1" 200' in log and "Traceback" not in log and "ERROR" not in log
