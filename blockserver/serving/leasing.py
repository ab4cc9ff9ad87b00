"""What a server answers to a lease: taken, declined with the reason, or how far loading has come. A coordinator that is gone
changes nothing: what was accepted is completed, what was not is not begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from blockserver.serving.conduct import Objection
from blockserver.serving.hint_client import CoordinatorDown, HintClient
from swarm.wire.hints import LeaseDocument, LeaseReply
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

MAX_REASON_LENGTH = 200
ONCE_MORE_AFTER_S = 2.0
"""Before an accept without an answer is sent again: a site behind a proxy is back after such a moment."""
ONCE_MORE_WITHIN_S = 15.0
"""The longest that a busy coordinator makes a server wait for it. An offer stands for a minute and a half."""


class Leases:
    """`hints` None: there is no coordinator, and every decision is this server's own."""

    def __init__(
        self, hints: HintClient | None, peer_id: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._hints, self._peer_id, self._sleep = hints, peer_id, sleep

    async def take(self, lease: LeaseDocument | None, serving: Span | None = None) -> bool:
        """Before anything is unloaded. True also where there is no lease to take. `serving` is what the server serves now, of
        whichever model."""
        if lease is None or self._hints is None:
            return True
        try:
            reply = await self._accept(self._hints, lease, serving)
        except CoordinatorDown as error:
            log.warning("the lease could not be taken (%s); not moving without it", error)
            return False
        if reply.outcome == "stale":
            log.info("the lease is stale: %s", reply.reason)
        return reply.outcome == "ok"

    async def _accept(self, hints: HintClient, lease: LeaseDocument, serving: Span | None) -> LeaseReply:
        """The coordinator may have taken the accept, and its answer was lost: then it waits for a server that stays. Accepting
        twice is no harm."""
        try:
            return await hints.accept(lease, self._peer_id, serving)
        except CoordinatorDown as error:
            log.info("no answer to the accept (%s); trying once more", error)
            await self._sleep(min(max(error.retry_after_s or 0.0, ONCE_MORE_AFTER_S), ONCE_MORE_WITHIN_S))
            return await hints.accept(lease, self._peer_id, serving)

    async def decline(self, lease: LeaseDocument | None, why: Objection) -> None:
        if lease is None or self._hints is None:
            return
        log.info("declining the lease for %s: %s", lease.to_span().in_words(), why)
        with contextlib.suppress(CoordinatorDown):
            await self._hints.decline(lease, self._peer_id, str(why)[:MAX_REASON_LENGTH], why.not_again_s)

    async def report(self, lease: LeaseDocument | None, progress: float) -> bool:
        """Keeps the lease open while its blocks load. False where it has run out; who does not answer may still keep it."""
        if lease is not None and self._hints is not None:
            with contextlib.suppress(CoordinatorDown):
                return (await self._hints.report_progress(lease, self._peer_id, progress)).outcome == "ok"
        return True
