"""A client's reports to a site: once a minute at most, beside everything else. Whatever goes wrong here, answers go on.

Knows when and to whom; what is told is `client.notes`. Each process signs with a key of its own that it keeps nowhere: the site
counts one word for each address, and needs to know nobody again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from blockserver.client.notes import Notes
from blockserver.serving.hint_client import CoordinatorDown, HintClient
from swarm.wire.identity import Signer
from swarm.wire.reports import ReportReply, ReportRequest

log = logging.getLogger(__name__)

PERIOD_S = 60.0
LAST_WORD_S = 2.0
"""For what is left to be told at the end: nobody waits longer for that."""


@dataclass
class Reporter:
    prefix: str
    notes: Notes
    site: HintClient
    peer_id: str
    period_s: float = PERIOD_S
    _told_at: float | None = field(default=None, init=False)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.period_s)
            try:
                await self.tell()
            # Door: a fault in what is told must not end the telling, let alone a generation.
            except Exception:
                log.exception("no report to %s", self.site.coordinator)

    async def tell(self) -> ReportReply | None:
        """None where there was nothing to tell, or nobody to tell it to. What could not be told is not told later: the site
        keeps the newest word only."""
        if self._told_at is not None and time.monotonic() - self._told_at < self.period_s:
            return None
        servers = self.notes.take()
        if not servers:
            return None
        self._told_at = time.monotonic()
        try:
            return await self.site.report(ReportRequest(peer=self.peer_id, model=self.prefix, servers=servers))
        except CoordinatorDown as error:
            log.info("not told to the site: %s", error)
            return None

    async def last_word(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORD_S):
                await self.tell()
        except TimeoutError:
            log.info("not told to the site: %s does not answer", self.site.coordinator)
        # Door, as above: the answer is there, and its process ends well.
        except Exception:
            log.exception("no report to %s", self.site.coordinator)


@contextlib.asynccontextmanager
async def reporting(
    coordinator: str | None, prefix: str, notes: Notes | None, period_s: float = PERIOD_S
) -> AsyncIterator[Reporter | None]:
    """Tells the site what is noted while this is open, and what is left at its end. Without a site, or notes, nothing."""
    if coordinator is None or notes is None:
        yield None
        return
    signer = Signer.from_seed(os.urandom(32))
    async with HintClient(coordinator, signer) as site:
        reporter = Reporter(prefix, notes, site, signer.peer_id, period_s)
        telling = asyncio.create_task(reporter.run())
        try:
            yield reporter
        finally:
            telling.cancel()
            await asyncio.wait({telling})
            await reporter.last_word()
