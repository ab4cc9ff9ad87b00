"""Churn as crawls saw it, and what follows from it, counted the plain way: a minute, a block and a server at a time.

Knows nothing of how the history stores it; only what a minute is, and that its worst look counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from monitor.crawl import CrawlReport
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.spans import Span
from tests.monitor.seeding import announced, failure, online, report, unreachable
from tests.swarms import model, peer_id

BLOCKS = 3
NAMES = ("a", "b", "c")
START = 1_790_000_000.0 // 86_400 * 86_400 + 86_400 - 25 * 60
"""25 minutes before midnight, so that traces cross a day and an hour."""


@dataclass(frozen=True)
class Look:
    """One crawl `after_s` the one before, by a clock that is set back at times: which servers stood where, which blocks could
    not be read; None: it failed."""

    after_s: int
    servers: dict[str, tuple[int, int, PeerState]] | None
    unread: frozenset[int] = frozenset()


_PARTS = st.integers(0, BLOCKS - 1).flatmap(lambda start: st.tuples(st.just(start), st.integers(start + 1, BLOCKS)))
_SPANS = st.just((0, BLOCKS)) | st.just((0, BLOCKS)) | _PARTS
_STATES = st.sampled_from([PeerState.ONLINE, PeerState.ONLINE, PeerState.ONLINE, PeerState.JOINING, PeerState.UNREACHABLE])
_PRESENT = st.booleans() | st.just(True)


@st.composite
def looks(draw: st.DrawFn) -> Look:
    after_s = draw(st.sampled_from([15, 25, 25, 60, 60, 75, 90, 180, 1_500, -130, -700, -4_000]))
    if draw(st.integers(0, 5)) == 0:
        return Look(after_s, None)
    servers = {name: (draw(_SPANS), draw(_STATES)) for name in NAMES if draw(_PRESENT)}
    unread = draw(st.sampled_from([frozenset(), frozenset(), frozenset(), frozenset({0}), frozenset({1, 2})]))
    return Look(after_s, {name: (*span, state) for name, (span, state) in servers.items()}, unread)


traces = st.lists(looks(), min_size=1, max_size=20)


def crawls(trace: Iterable[Look], start: float = START, blocks: int = BLOCKS) -> list[CrawlReport]:
    made, at = [], start
    for look in trace:
        at += look.after_s
        made.append(failure(at) if look.servers is None else report(at, _model(look, at, blocks)))
    return made


def _model(look: Look, at: float, blocks: int) -> Model:
    assert look.servers is not None
    servers = sorted((_server(n, *f, at) for n, f in look.servers.items()), key=lambda s: (s.span, s.peer_id))
    return model(blocks, *servers, unread=look.unread)


def _server(name: str, start: int, end: int, state: PeerState, at: float) -> Server:
    if state is PeerState.ONLINE:
        return online(name, start, end, at=at)
    return unreachable(name, start, end, at=at) if state is PeerState.UNREACHABLE else announced(name, start, end, state, at)


@dataclass
class Recount:
    """Minutes, as integers since 1970, by what they were: of the model, of each block by its worst word, of each server."""

    watched: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    thin: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    blocks: dict[str, dict[int, set[int]]] = field(
        default_factory=lambda: {"missing": {}, "thin": {}, "unread": {}, "fine": {}}
    )
    up: dict[str, set[int]] = field(default_factory=dict)
    down: dict[str, set[int]] = field(default_factory=dict)


Seen = tuple[dict[str, tuple[Span, str]], frozenset[int]]
"""Of one look, for each server its span and one word; and the blocks that could not be read."""

_WORDS = {PeerState.ONLINE: "up", PeerState.NOT_CHECKED: "unchecked"}
"""In any other state a server is down."""


def recount(trace: Iterable[Look], interval_s: float, start: float = START, blocks: int = BLOCKS) -> Recount:
    """Each watched minute by hand: all looks that count for it, then the worst of them."""
    by_minute: dict[int, list[Seen]] = {}
    at, before = start, None
    known: dict[str, tuple[Span, str]] = {}
    for look in trace:
        at += look.after_s
        if look.servers is None:
            before = None
            continue
        now = {name: (Span(s, e), _WORDS.get(state, "down")) for name, (s, e, state) in look.servers.items()}
        for name, (span, was) in known.items():
            if name not in now:
                blind_to = any(block in look.unread for block in span) and was != "gone"
                now[name] = (span, "unchecked" if blind_to else "gone")
        if before is not None and at - before[0] <= 1.5 * interval_s:
            for minute in range(int(before[0] // 60) + 1, int(at // 60)):
                by_minute.setdefault(minute, list(by_minute[int(before[0] // 60)]))
        by_minute.setdefault(int(at // 60), []).append((now, look.unread))
        known, before = now, (at,)
    return _judge(by_minute, blocks)


def _judge(by_minute: dict[int, list[Seen]], blocks: int) -> Recount:
    found = Recount()
    first: dict[str, int] = {}
    for minute, seen in sorted(by_minute.items()):
        found.watched.add(minute)
        worst = [_worst(block, seen) for block in range(blocks)]
        for block, word in enumerate(worst):
            found.blocks[word].setdefault(block, set()).add(minute)
        for word, minutes in (("missing", found.broken), ("unread", found.unknown), ("thin", found.thin)):
            if word in worst:
                minutes.add(minute)
                break
        for name in {name for now, _ in seen for name in now} | first.keys():
            words = set(_since_it_came([now[name][1] for now, _ in seen if name in now]))
            if name not in first and words - {"gone"}:
                first[name] = minute
            if name in first and words != {"unchecked"}:
                up = bool(words) and words <= {"up", "unchecked"}
                (found.up if up else found.down).setdefault(peer_id(name), set()).add(minute)
    return found


def _since_it_came(words: list[str]) -> list[str]:
    """A server that comes in the middle of a minute is not down before; one that leaves in it is down."""
    while len(words) > 1 and words[0] == "gone":
        words = words[1:]
    return words


def _worst(block: int, seen: list[Seen]) -> str:
    words = set()
    for now, unread in seen:
        holders = sum(1 for span, word in now.values() if word == "up" and block in span)
        words.add("unread" if not holders and block in unread else ("missing", "thin")[holders] if holders < 2 else "fine")
    return next(word for word in ("missing", "thin", "fine", "unread") if word in words)
