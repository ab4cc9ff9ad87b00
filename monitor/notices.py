"""How far the monitor itself may be believed, in words: blind, stale, first start, empty. Pure.

A monitor that sees nothing must say so, and say that this is not the servers' fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.published import CrawlFacts, Watch, ago
from monitor.times import Moment


@dataclass(frozen=True, slots=True)
class Notice:
    """`kind` is its class: `warning` where what is shown may be wrong, `note` otherwise."""

    kind: str
    words: str


def notices(seen: Watch) -> tuple[Notice, ...]:
    published, last = seen.published, seen.last_crawl
    if last is None:
        return (Notice("note", "First check running. The page fills by itself."),)
    said: list[Notice] = []
    if last.failure and not seen.sees:
        said.append(Notice("warning", _blind(seen, last)))
    elif last.failure:
        said.append(Notice("note", f"The last check failed ({last.failure}). What you see is from the one before."))
    if published is not None and published.stale:
        said.append(Notice("warning", _stale(published.age_s(), seen.interval_s)))
    if published is not None and not published.stale and not published.snapshot.models:
        said.append(Notice("note", _empty(last)))
    if published is not None and not published.stale and last.keys_unread and not last.failure:
        said.append(Notice("note", f"{last.keys_unread} keys could not be read in the last check: what they hold is unknown."))
    return tuple(said)


def _blind(seen: Watch, last: CrawlFacts) -> str:
    since = f" since {Moment(seen.failing_since, seen.read_at).clock}" if seen.failing_since is not None else ""
    peers = f"{last.bootstraps_up} of {len(last.bootstraps)} bootstrap peers answered; " if last.bootstraps else ""
    blind = f"We cannot see the swarm{since}: {peers}{_ended(last.failure)}"
    return f"{blind} This says nothing about the servers. No downtime is counted."


def _ended(words: str) -> str:
    return words if words.endswith((".", "?", "!")) else f"{words}."


def _stale(age_s: float, interval_s: float) -> str:
    return f"Last check {ago(age_s)} ago (expected every {interval_s:g} s). Servers may have come or gone since."


def _empty(last: CrawlFacts) -> str:
    total = len(last.bootstraps)
    return (
        f"No model has been announced in this swarm yet. We reached {last.bootstraps_up} of {total} bootstrap "
        f"{'peer' if total == 1 else 'peers'}. Start the first server with sepal serve MODEL_FOLDER --initial-peers ADDRESS."
    )
