"""What an open page knows: what it was loaded with, and since then only what was pushed to it. As its script does it: a part
that was too long for a message is fetched.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import websockets

PATIENCE_S = 240.0
"""From kill -9 to the change on an open page with default intervals, ten times over."""


class OpenPage:
    def __init__(self, socket: websockets.ClientConnection, url: str) -> None:
        self._socket, self._url = socket, url
        self._parts: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._headings: list[str] = []

    @property
    def html(self) -> str:
        return "\n".join(self._parts.values())

    @property
    def heading(self) -> str:
        found = re.search(r"<h1[^>]*>(.*?)</h1>", self._parts.get("top", ""), re.DOTALL)
        return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split()) if found else ""

    async def load(self) -> None:
        """To be called when the socket is open: so nothing is pushed in between."""
        await self._fetch("all")

    async def hear(self) -> None:
        """The next push."""
        message = json.loads(await self._socket.recv())
        lacking = self._take(message)
        if lacking:
            await self._fetch(",".join(lacking))
        self._headings.append(self.heading)

    async def until(self, holds: Callable[[OpenPage], bool]) -> None:
        """It holds already, or from some push on."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds(self):
                    await self.hear()
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE_S:g} s; the headings that were: {self._headings}") from None

    async def _fetch(self, names: str) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            self._take((await http.get(self._url, params={"fragment": names})).json())

    def _take(self, document: dict[str, Any]) -> list[str]:
        """The names of the parts that are newer than what is known, and did not come along."""
        known = document["digests"]
        self._parts.update(document["parts"])
        self._digests.update({name: known[name] for name in document["parts"]})
        return [name for name, digest in known.items() if self._digests.get(name) != digest]
