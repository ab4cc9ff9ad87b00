"""A browser tab's WebSocket, as the ASGI application sees it. (That of `channels.testing` needs another web server.)"""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.testing import ApplicationCommunicator

from coordinator.asgi import application

PATIENCE_S = 60.0
"""What is waited for comes within milliseconds, on a busy machine within seconds: only who fails waits so long."""

ORIGIN = [(b"origin", b"http://127.0.0.1"), (b"host", b"127.0.0.1")]


class Tab:
    def __init__(self, path: str, headers: list[tuple[bytes, bytes]] = ORIGIN) -> None:
        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": []}
        self._connection = ApplicationCommunicator(application, scope)

    async def connect(self) -> bool:
        """Whether it was accepted."""
        await self._connection.send_input({"type": "websocket.connect"})
        return (await self.hear())["type"] == "websocket.accept"

    async def hear(self) -> dict[str, Any]:
        """What comes next; what the application raised, as soon as it has."""
        output = asyncio.ensure_future(self._connection.receive_output(timeout=PATIENCE_S))
        await asyncio.wait({output, self._connection.future}, return_when=asyncio.FIRST_COMPLETED)
        if not output.done() and self._connection.output_queue.empty():
            output.cancel()
            await asyncio.wait({output})
            self._connection.future.result()
            raise AssertionError("the application ended and said nothing")
        said: dict[str, Any] = await output
        return said

    async def text(self) -> str:
        said = await self.hear()
        assert said["type"] == "websocket.send", said
        return str(said["text"])

    async def nothing(self, for_s: float = 0.1) -> bool:
        return bool(await self._connection.receive_nothing(for_s))

    async def disconnect(self) -> None:
        await self._connection.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._connection.wait(timeout=PATIENCE_S)
