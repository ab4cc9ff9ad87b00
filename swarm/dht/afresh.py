"""A second p2pd, for peers that the first one does not dial: after failed dials libp2p waits, up to five minutes, and answers
with the old failure meanwhile. A server that came back would be called unreachable all that time.

Started when it is needed first; it remembers no failures. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from hivemind.p2p import P2P, PeerID

from swarm.dht.bare import FAULTS, connect, start_bare, stop_bare
from swarm.dht.probe import ANYBODY, DIAL_TIMEOUT_S, ask, edges_of
from swarm.snapshot import Visit
from swarm.wire.spans import Span


class FreshDialler:
    """End it with `close`."""

    def __init__(self, relay: bool = False) -> None:
        self._relay = relay
        self._starting: asyncio.Future[P2P] | None = None

    async def visit(self, failed: Visit, prefix: str, span: Span) -> Visit:
        """As `probe.visit`, over the addresses that the failed visit names. The failed visit where these do not answer now, or
        where our own end does not work."""
        return replace(await self._ask(failed, edges_of(prefix, span)), span=span)

    async def dial(self, failed: Visit) -> Visit:
        """As `probe.dial`."""
        return await self._ask(failed, ANYBODY)

    async def close(self) -> None:
        if self._starting is not None:
            with contextlib.suppress(*FAULTS):
                await stop_bare(await self._starting)

    async def _ask(self, failed: Visit, uids: list[str]) -> Visit:
        if self._starting is None:
            self._starting = asyncio.ensure_future(start_bare(self._relay))
        try:
            # Whoever gives up waiting must not end it for the others.
            p2p = await asyncio.shield(self._starting)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await connect(p2p, PeerID.from_base58(failed.peer_id), list(failed.addresses))
        except FAULTS:
            return failed
        return await ask(p2p, failed.peer_id, uids)
