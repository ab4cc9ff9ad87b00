"""The recording in tests/data/churn: what the crawls of a real swarm saw, and what was done to that swarm meanwhile.

Knows the form of the file, and when a server may have answered and when it must have; nothing of what is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from swarm.snapshot import PeerState
from tests.monitor.traces import Look

FILE = Path(__file__).parents[1] / "data" / "churn" / "churn.jsonl"


@dataclass(frozen=True)
class Event:
    """At so many seconds since the beginning; of servers, bootstrap peers and the crawler itself."""

    at: float
    what: str
    who: str


@dataclass(frozen=True)
class Crawl:
    """`look.after_s` counts from the crawl before. Servers were visited between `at` and `ended`."""

    at: float
    ended: float
    look: Look


@dataclass(frozen=True)
class Recording:
    blocks: int
    interval_s: float
    crawls: tuple[Crawl, ...]
    events: tuple[Event, ...]

    @property
    def looks(self) -> list[Look]:
        return [crawl.look for crawl in self.crawls]

    @property
    def began(self) -> int:
        """The second of the first crawl."""
        return int(self.crawls[0].at)

    @property
    def visits_s(self) -> float:
        """The longest time from the reading of a crawl that was published to the end of its last visit."""
        return max(crawl.ended - crawl.at for crawl in self.crawls if crawl.look.servers is not None)


@cache
def recording(file: Path = FILE) -> Recording:
    about, *lines = map(json.loads, file.read_text("ascii").splitlines())
    events = [Event(line["at"], line["what"], line["who"]) for line in lines if line["kind"] == "event"]
    crawls: list[Crawl] = []
    for line in lines:
        if line["kind"] == "crawl":
            before = int(crawls[-1].at) if crawls else int(line["at"])
            crawls.append(Crawl(line["at"], line["ended"], _look(int(line["at"]) - before, line)))
    return Recording(about["blocks"], about["interval_s"], tuple(crawls), tuple(events))


def _look(after_s: int, line: dict[str, Any]) -> Look:
    if "failed" in line or "held" in line:
        return Look(after_s, None)
    servers = {name: (start, end, PeerState(state)) for name, (start, end, state) in line["servers"].items()}
    return Look(after_s, servers, frozenset(line.get("unread", ())))


def stretched(looks: Iterable[Look], factor: int) -> list[Look]:
    return [replace(look, after_s=factor * look.after_s) for look in looks]


def without(looks: Sequence[Look], left_out: frozenset[int]) -> list[Look]:
    """As if those crawls had never been made: time goes on."""
    kept: list[Look] = []
    skipped_s = 0
    for number, look in enumerate(looks):
        if number in left_out:
            skipped_s += look.after_s
        else:
            kept.append(replace(look, after_s=look.after_s + skipped_s))
            skipped_s = 0
    return kept


@dataclass
class Life:
    """Times in seconds, as halves open to the right. `able`: the process ran, and may have answered; `serving`: it had said
    that it serves, and nothing had been done to it since."""

    able: list[tuple[float, float]]
    serving: list[tuple[float, float]]


def lives(events: Iterable[Event], end: float) -> dict[str, Life]:
    """Of everyone to whom anything happened."""
    by_name: dict[str, list[Event]] = {}
    for event in events:
        by_name.setdefault(event.who, []).append(event)
    return {name: _life(listed, end) for name, listed in by_name.items()}


MOVE_S = 20.0
"""A server says that it has moved when it stands there. It had let go of its old blocks by so much before, at most."""

_CHANGES: dict[str, dict[str, bool]] = {
    "start": {"runs": True, "frozen": False, "told": False, "leaves": False, "moves": False},
    "ready": {"told": True},
    "moves": {"moves": True},
    "moved": {"moves": False},
    "kill": {"leaves": True},
    "stop": {"leaves": True},
    "freeze": {"frozen": True},
    "thaw": {"frozen": False},
    "ended": {"runs": False},
}


def _life(events: list[Event], end: float) -> Life:
    moves = [Event(event.at - MOVE_S, "moves", event.who) for event in events if event.what == "moved"]
    told = [*sorted([*moves, *events], key=lambda event: event.at), Event(end, "ended", "")]
    life = Life([], [])
    state = dict.fromkeys(("runs", "frozen", "told", "leaves", "moves"), False)
    for event, following in pairwise(told):
        state |= _CHANGES.get(event.what, {})
        if state["runs"] and not state["frozen"]:
            _go_on(life.able, event.at, following.at)
            if state["told"] and not state["leaves"] and not state["moves"]:
                _go_on(life.serving, event.at, following.at)
    return life


def _go_on(spells: list[tuple[float, float]], begin: float, end: float) -> None:
    begin = spells.pop()[0] if spells and spells[-1][1] == begin else begin
    spells.append((begin, end))


def during(spells: Iterable[tuple[float, float]], first: float, last: float) -> bool:
    """Whether one of them holds any of that time."""
    return any(begin < last and first < end for begin, end in spells)


def throughout(spells: Iterable[tuple[float, float]], first: float, last: float) -> bool:
    """Whether one of them holds all of that time."""
    return any(begin <= first and last <= end for begin, end in spells)
