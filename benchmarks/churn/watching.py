"""The monitor that watches: the site's own rounds (crawl, judge, look again, store), one after another, on a thread.

What is stored is written down as well. The crawler's own faults are done to its p2pd, at the moment at which they hurt.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.churn.lines import Lines
from benchmarks.churn.plan import CRAWLER, Act, Step
from coordinator.launch import kernel
from monitor import rounds, store
from monitor.crawl import CrawlReport
from monitor.crawler import Crawler, NodeReader
from monitor.progress import Stage, Tell, untold
from monitor.sizes import EVERYBODY, Witnesses
from swarm.dht.bulk import Heard
from swarm.dht.node import Node
from swarm.snapshot import Reading, Snapshot
from swarm.wire.keys import block_uid
from swarm.wire.records import ModelRecord

DIM_S = 11.0
"""Longer than a question to a node and the smallest one after it, 5 s each."""
GAP_CRAWLS = (1, 3)
"""So many crawls in a row do not read what a gap hides."""


class _Gapped(NodeReader):
    """Reads as the product does, and then does not have what stands under some keys. To make a key unreadable for all nodes
    would take a swarm without nodes, or a stranger who harms them: either would be another recording."""

    hidden: frozenset[int] = frozenset()

    async def read_blocks(self, models: Mapping[str, int], heard: Heard | None = None) -> dict[str, Reading]:
        found = await super().read_blocks(models, heard)
        return {prefix: self._without(prefix, reading) for prefix, reading in found.items()}

    def _without(self, prefix: str, reading: Reading) -> Reading:
        keys = {block_uid(prefix, block) for block in self.hidden}
        entries = {key: listed for key, listed in reading.entries.items() if key not in keys}
        return replace(reading, entries=entries, unread=reading.unread | keys)


class FaultyCrawler(Crawler):
    """The product's crawler, to whose p2pd something happens in the middle of the next crawl."""

    def __init__(self, initial_peers: tuple[str, ...], lines: Lines, dice: random.Random) -> None:
        super().__init__(initial_peers)
        self._lines, self._dice = lines, dice
        self._due: Act | None = None
        self._gap: tuple[int, frozenset[int]] = (0, frozenset())

    def suffer(self, step: Step) -> None:
        if step.act is Act.GAP and step.span is not None:
            self._lines.event(step.act.value, step.who, step.span)
            self._gap = (self._dice.randint(*GAP_CRAWLS), frozenset(range(*step.span)))
        else:
            self._due = step.act

    def crawl(
        self,
        swarm: str,
        known: Mapping[str, ModelRecord],
        previous: Snapshot | None = None,
        tell: Tell = untold,
        witnesses: Witnesses = EVERYBODY,
    ) -> CrawlReport | None:
        def hurt(stage: Stage, done: int, of: int) -> None:
            act = self._due
            if (act is Act.BLIND and stage is Stage.SERVERS) or (act is Act.DIM and stage is Stage.BLOCKS):
                self._due = None
                self._hurt(act)
            tell(stage, done, of)

        try:
            return super().crawl(swarm, known, previous, hurt, witnesses)
        finally:
            left, blocks = self._gap
            self._gap = (left - 1, blocks) if left > 1 else (0, frozenset())

    def _reader(self, node: Node) -> NodeReader:
        reader = _Gapped(node, self._scouts, self._silence)
        _, reader.hidden = self._gap
        return reader

    def _hurt(self, act: Act) -> None:
        self._lines.event(act.value, CRAWLER)
        pids = own_daemons()
        for pid in pids:
            kernel.send(pid, signal.SIGKILL if act is Act.BLIND else signal.SIGSTOP)
        if act is Act.DIM:
            threading.Timer(DIM_S, _wake, (pids,)).start()


def _wake(pids: list[int]) -> None:
    for pid in pids:
        kernel.send(pid, signal.SIGCONT)


def own_daemons() -> list[int]:
    """The p2pds that this process itself has started: the crawler's."""
    marks = [kernel.mark(pid) for pid in kernel.descendants(os.getpid()) if _parent(pid) == os.getpid()]
    return [known.pid for known in marks if known is not None and "p2pd" in known.command[0]]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return None


class Watching(threading.Thread):
    """Rounds begin `interval_s` apart, or at once where the one before took longer."""

    def __init__(self, swarm: str, crawler: FaultyCrawler, lines: Lines, interval_s: float) -> None:
        super().__init__(name="watching")
        self._swarm, self._crawler, self._lines, self._interval_s = swarm, crawler, lines, interval_s
        self._enough = threading.Event()

    def run(self) -> None:
        kept = store.store

        def noted(report: CrawlReport) -> object:
            self._lines.crawl(report)
            return kept(report)

        store.store = noted  # type: ignore[assignment]
        try:
            while not self._enough.is_set():
                begun = time.monotonic()
                rounds.run(self._swarm, self._crawler)
                self._enough.wait(max(0.0, begun + self._interval_s - time.monotonic()))
        finally:
            store.store = kept

    def end(self) -> None:
        self._enough.set()
        self.join()
