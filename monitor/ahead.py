"""Servers that were there last time are visited while the DHT is still read, so that those that are silent are waited for
together with silent nodes, and not after them.

Whoever stands in the DHT now, and under which blocks, is not known yet: each is asked for the blocks that it was asked for
last time. An answer counts once: who is to be asked again is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from types import TracebackType

from monitor.probe import Ask, Target
from swarm.snapshot import Visit
from swarm.wire.spans import Span

AT_ONCE = 64
"""Fewer than `probe.VISITS_AT_ONCE`: libp2p dials at most 160 peers at a time, nodes among them."""


class Ahead:
    """Ends what still runs when it is left."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._begun: dict[tuple[str, str, Span], asyncio.Task[Visit]] = {}
        self._workers: list[asyncio.Task[None]] = []

    def begin(self, chosen: Iterable[Target]) -> None:
        """In this order, for the first of the spans of each."""
        turn = iter(list(chosen))

        async def work() -> None:
            for target in turn:
                key = (target.peer_id, target.prefix, target.spans[0])
                visit = self._begun[key] = asyncio.ensure_future(self._ask(*key))
                await asyncio.wait({visit})

        self._workers = [asyncio.ensure_future(work()) for _ in range(AT_ONCE)]

    def begun(self, peer_id: str, prefix: str, span: Span) -> Awaitable[Visit] | None:
        """The visit that was begun, once."""
        return self._begun.pop((peer_id, prefix, span), None)

    def no_more(self) -> None:
        """Who has not been asked yet is left to the visits proper, which have an order of their own."""
        for worker in self._workers:
            worker.cancel()

    async def __aenter__(self) -> Ahead:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.no_more()
        running = [*self._workers, *self._begun.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
