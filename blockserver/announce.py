"""Tells the DHT what is served: on a period, at once when something changes, and OFFLINE at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from swarm.dht.declare import declare_model, declare_server, record_life_s
from swarm.dht.node import Node
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span, runs

log = logging.getLogger(__name__)


class Announcer:
    """`describe` gives the current record; state and span are filled in here."""

    def __init__(
        self, node: Node, prefix: str, model: ModelRecord, describe: Callable[[], ServerRecord], update_period_s: float
    ) -> None:
        self._node = node
        self._prefix = prefix
        self._model = model
        self._describe = describe
        self._period_s = update_period_s
        self._life_s = record_life_s(update_period_s)
        self._said: tuple[ServerState, Span] | None = None

    async def say(self, state: ServerState, span: Span) -> None:
        """From now on this is what is announced. Blocks left behind are announced OFFLINE first, so that nobody waits there."""
        if self._said is not None and self._said[1] != span:
            await self._leave(self._said[1], span)
        self._said = (state, span)
        await self.repeat()

    async def repeat(self) -> None:
        if self._said is None:
            return
        state, span = self._said
        record = replace(self._describe(), state=state, span=span)
        stored = await declare_server(self._node, self._prefix, span, record, self._life_s)
        if stored < len(span):
            log.warning("the DHT took only %d of %d announcements; trying again in %g s", stored, len(span), self._period_s)
        if state is not ServerState.OFFLINE:
            await declare_model(self._node, self._prefix, self._model, self._life_s)

    async def keep_saying(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            await self.repeat()

    async def _leave(self, old: Span, new: Span) -> None:
        record = replace(self._describe(), state=ServerState.OFFLINE, span=old)
        for left in runs(block for block in old if block not in new):
            await declare_server(self._node, self._prefix, left, record, self._life_s)
