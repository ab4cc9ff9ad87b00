"""What the planner reasons on, kept in this process until it changes: the newest crawl with everyone in it, and what is
believed of the servers of each model. To read it takes fifty milliseconds of one core with 500 servers, of which each asks
once a minute.

Whether it still holds is asked of Postgres each time. So whoever holds a model's lock reasons on the newest crawl.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings

from coordinator.known import cautious, standing_facts
from monitor import queries
from monitor.published import Published, Watch
from monitor.rates import evidence
from monitor.rulings import staff
from swarm.placement import Circumstances
from swarm.snapshot import Model

REREAD_AFTER_S = 10.0
"""Also where nothing is known to have changed: reports of clients come one by one, and count for half a day."""
FACTS_HOLD_S = 5.0
"""Ages are counted in minutes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one model: as the planner is to count on it, and what stands of its circumstances."""

    counted: Model
    standing: Circumstances


@dataclass(frozen=True, slots=True)
class _Read:
    watch: Watch
    marks: tuple[object, ...]
    at: float
    facts: dict[str, tuple[int, Facts]] = field(default_factory=dict)
    """By prefix, with the stretch of time for which they hold."""

    @property
    def newest(self) -> int:
        """The crawl that it shows; 0 for none."""
        return self.watch.published.snapshot_id if self.watch.published else 0


@dataclass(frozen=True, slots=True)
class Watching:
    """All that is seen of a swarm at this moment."""

    watch: Watch
    _read: _Read

    def facts(self, published: Published, model: Model, now: datetime) -> Facts:
        """Of a model of what is published. No query."""
        stretch = int(now.timestamp() // FACTS_HOLD_S)
        kept = self._read.facts.get(model.prefix)
        if kept is not None and kept[0] == stretch:
            return kept[1]
        made = Facts(cautious(model, published), standing_facts(published, model, now))
        self._read.facts[model.prefix] = (stretch, made)
        return made


_lock = threading.Lock()
_reads: dict[str, _Read] = {}


def everyone(swarm: str) -> Watching:
    """As `monitor.queries.watch_everyone`, read again only where it would be another one."""
    now = time.time()
    marks = _marks(swarm, now)
    read = _kept(swarm, marks, now)
    if read is None:
        # One reader at a time: after a crawl everybody asks at once, and they all want the same.
        with _lock:
            read = _kept(swarm, marks, now)
            if read is None:
                read = _reads[swarm] = _Read(queries.watch_everyone(swarm, now), marks, now)
    return Watching(read.watch.as_of(now), read)


def prepare(swarm: str) -> None:
    """Reads another crawl where there is one; little is asked where there is none."""
    read = _reads.get(swarm)
    if read is None or read.newest != queries.newest_success(swarm):
        everyone(swarm)


def forget() -> None:
    with _lock:
        _reads.clear()


def _kept(swarm: str, marks: tuple[object, ...], now: float) -> _Read | None:
    read = _reads.get(swarm)
    return read if read is not None and read.marks == marks and 0 <= now - read.at < REREAD_AFTER_S else None


def _marks(swarm: str, now: float) -> tuple[object, ...]:
    """What it depends on: the newest crawls, what the staff has ruled, what servers' answers came to, and the time between two
    crawls. Taken before the reading: what changes while it is read makes it be read again."""
    interval_s = float(settings.SEPAL_CRAWL_INTERVAL_S)
    return queries.newest_crawls(swarm), staff().rulings(swarm, now), evidence.mark_of(swarm), interval_s
