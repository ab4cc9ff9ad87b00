"""The table of servers as it is asked for: filter, order, page and columns from the query string. Pure.

Links lead from one view to the next, so that every view has an address and works without scripts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from monitor.serving import cache_left_of, shown_state, version_of
from swarm.snapshot import PeerState, Server

A_PAGE = 25
STATES = ("online", "full", "joining", "leaving", "unreachable", "gone", "not checked", "quarantined")
STATE_MEANINGS = {
    "online": "serves its blocks; clients pass through it",
    "full": "serves its blocks, but has no cache left for another session",
    "joining": "loads its blocks; it serves them when it is done",
    "leaving": "says that it stops; its blocks need another server",
    "unreachable": "announces itself, but did not answer us; clients may fail as well",
    "gone": "announces itself no more; listed for an hour",
    "not checked": "there was no time to ask it, or its record could not be read",
    "quarantined": "set aside by this site's staff; it counts for nothing",
}
MAX_BLOCK = 9_999

Key = Callable[[Server], tuple[float | str, ...]]


def _speed(server: Server) -> tuple[float | str, ...]:
    return (-(server.record.throughput if server.record.throughput is not None else -1.0),)


def _cache(server: Server) -> tuple[float | str, ...]:
    left = cache_left_of(server)
    return (-(left / len(server.span) if left is not None else -1.0),)


ORDERS: dict[str, tuple[str, Key]] = {
    "blocks": ("first block", lambda s: (s.state is PeerState.GONE, s.span.start, s.span.end)),
    "longest": ("longest span", lambda s: (-len(s.span), s.span.start)),
    "fastest": ("throughput", _speed),
    "cache": ("cache left", _cache),
    "state": ("state", lambda s: (STATES.index(shown_state(s)), s.span.start)),
    "version": ("version", lambda s: (version_of(s) is None, version_of(s) or "")),
    "name": ("name", lambda s: (s.record.public_name is None, (s.record.public_name or "").casefold())),
}
"""What stands in the address, what people read, and the order itself; the peer id decides between equals."""


@dataclass(frozen=True, slots=True)
class View:
    """What was asked for. Whatever makes no sense is as if it were not there."""

    state: str = ""
    block: int | None = None
    order: str = "blocks"
    page: int = 1
    more: bool = False

    @property
    def plain(self) -> bool:
        return self == View()

    @property
    def query(self) -> str:
        asked = {
            "state": self.state,
            "block": "" if self.block is None else self.block,
            "sort": "" if self.order == "blocks" else self.order,
            "page": "" if self.page == 1 else self.page,
            "more": "1" if self.more else "",
        }
        said = urlencode({name: value for name, value in asked.items() if value != ""})
        return f"?{said}"

    def link(self) -> str:
        return f"{self.query}#servers"


@dataclass(frozen=True, slots=True)
class Choice:
    """One link above the table: `query` leads there, `current` where it is what is shown."""

    words: str
    query: str
    current: bool
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    view: View
    servers: tuple[Server, ...]
    total: int
    matching: int
    pages: int
    states: tuple[Choice, ...]
    orders: tuple[Choice, ...]
    newer: str
    older: str
    columns: Choice
    said: str
    """What is filtered for, in words; empty where nothing is."""

    @property
    def first(self) -> int:
        return (self.view.page - 1) * A_PAGE + 1

    @property
    def last(self) -> int:
        return self.first + len(self.servers) - 1


def view_of(query: Mapping[str, str]) -> View:
    block, page = query.get("block", ""), query.get("page", "")
    state, order = query.get("state", ""), query.get("sort", "blocks")
    return View(
        state=state if state in STATES else "",
        block=int(block) if re.fullmatch(r"[0-9]{1,4}", block) else None,
        order=order if order in ORDERS else "blocks",
        page=max(1, int(page)) if re.fullmatch(r"[0-9]{1,4}", page) else 1,
        more=query.get("more") == "1",
    )


def listing(servers: Sequence[Server], view: View) -> Listing:
    counted = Counter(shown_state(server) for server in servers)
    matching = [server for server in servers if _matches(server, view)]
    _, key = ORDERS[view.order]
    ordered = sorted(matching, key=lambda server: (*key(server), server.peer_id))
    pages = max(1, -(-len(ordered) // A_PAGE))
    view = replace(view, page=min(view.page, pages))
    return Listing(
        view=view,
        servers=tuple(ordered[(view.page - 1) * A_PAGE : view.page * A_PAGE]),
        total=len(servers),
        matching=len(matching),
        pages=pages,
        states=_states(counted, len(servers), view),
        orders=tuple(
            Choice(words, replace(view, order=name, page=1).link(), name == view.order) for name, (words, _) in ORDERS.items()
        ),
        newer=replace(view, page=view.page - 1).link() if view.page > 1 else "",
        older=replace(view, page=view.page + 1).link() if view.page < pages else "",
        columns=Choice("fewer columns" if view.more else "more columns", replace(view, more=not view.more).link(), view.more),
        said=_said(view),
    )


def _states(counted: Counter[str], total: int, view: View) -> tuple[Choice, ...]:
    found = [Choice(f"all {total}", replace(view, state="", page=1).link(), not view.state)]
    for state in STATES:
        if counted[state] or view.state == state:
            query = replace(view, state=state, page=1).link()
            found.append(Choice(f"{state} {counted[state]}", query, view.state == state, STATE_MEANINGS[state]))
    return tuple(found)


def _matches(server: Server, view: View) -> bool:
    if view.state and shown_state(server) != view.state:
        return False
    return view.block is None or view.block in server.span


def _said(view: View) -> str:
    said = [f"state={view.state}"] if view.state else []
    if view.block is not None:
        said.append(f"block={view.block}")
    return " and ".join(said)
