"""Tells the DHT what is served: on a period, at once when something changes, and OFFLINE at the end.

An announcement that fails or takes too long is told and tried again; nothing that stands in the DHT ends the announcing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from swarm.dht.declare import declare_model, declare_server, record_life_s
from swarm.dht.node import Node
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span, runs

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""For one round of announcements: a store asks a handful of peers, each with a limit of 3 s. A frozen p2pd never answers."""

RETRY_S = 5.0
"""After a round that failed: long before the records run out."""


class Announcer:
    """`describe` gives the current record; state and span are filled in here. `node` may be replaced by a new one."""

    def __init__(
        self, node: Node, prefix: str, model: ModelRecord, describe: Callable[[], ServerRecord], update_period_s: float
    ) -> None:
        self.node = node
        self.rounds = 0
        self.failures = 0
        self._prefix = prefix
        self._model = model
        self._describe = describe
        self._period_s = update_period_s
        self._life_s = record_life_s(update_period_s)
        self._said: tuple[ServerState, Span] | None = None

    @property
    def said(self) -> tuple[ServerState, Span] | None:
        """What is announced now."""
        return self._said

    async def say(self, state: ServerState, span: Span) -> None:
        """From now on this is what is announced. Blocks left behind are announced OFFLINE first, so that nobody waits there."""
        old, self._said = self._said, (state, span)
        if old is not None and old[1] != span:
            await self._bounded(self._leave(old[1], span))
        await self.repeat()

    async def change_model(self, prefix: str, model: ModelRecord) -> None:
        """What is announced now is announced OFFLINE; from then on this speaks for another model, once it says something."""
        old, was = self._said, self._prefix
        self._said, self._prefix, self._model = None, prefix, model
        if old is not None:
            record = replace(self._describe(), state=ServerState.OFFLINE, span=old[1])
            await self._bounded(self._store(was, record))

    async def repeat(self) -> bool:
        """Whether the DHT took all of it."""
        return self._said is None or await self._bounded(self._repeat(*self._said))

    async def keep_saying(self) -> None:
        """Runs until cancelled."""
        succeeded = True
        while True:
            await asyncio.sleep(self._period_s if succeeded else min(RETRY_S, self._period_s))
            succeeded = await self.repeat()

    async def _repeat(self, state: ServerState, span: Span) -> bool:
        prefix, model = self._prefix, self._model
        record = replace(self._describe(), state=state, span=span)
        whole = await self._store(prefix, record)
        if prefix != self._prefix:
            # The model was changed in the meantime: what has just been stored would call clients to where nobody is.
            return await self._store(prefix, replace(record, state=ServerState.OFFLINE))
        if state is not ServerState.OFFLINE:
            await declare_model(self.node, prefix, model, self._life_s)
        return whole

    async def _store(self, prefix: str, record: ServerRecord) -> bool:
        assert record.span is not None
        stored = await declare_server(self.node, prefix, record.span, record, self._life_s)
        if stored < len(record.span):
            log.warning("the DHT took only %d of %d announcements", stored, len(record.span))
        return stored == len(record.span)

    async def _bounded(self, work: Coroutine[Any, Any, bool]) -> bool:
        self.rounds += 1
        succeeded = False
        try:
            async with asyncio.timeout(TIMEOUT_S):
                succeeded = await work
        # Door: hivemind's DHT and libp2p fail in many ways, and an announcer that ended would take its server off the map.
        except Exception as error:
            log.warning("announcing failed (%s: %s); trying again", type(error).__name__, error)
        self.failures += not succeeded
        return succeeded

    async def _leave(self, old: Span, new: Span) -> bool:
        record = replace(self._describe(), state=ServerState.OFFLINE, span=old)
        for left in runs(block for block in old if block not in new):
            await declare_server(self.node, self._prefix, left, record, self._life_s)
        return True
