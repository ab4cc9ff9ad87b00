"""How far the monitor itself may be believed, in words: blind, stale, first start, empty. Pure.

A monitor that sees nothing must say so, and say that this is not the servers' fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.first_check import first_check, is_news
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
        return (Notice("note", f"{first_check(seen)} The page fills by itself."),)
    said: list[Notice] = [Notice("note", window.sentence) for window in seen.rulings.maintenance]
    if last.held and published is None:
        said.append(Notice("warning", _held(last.held, None, "There is nothing else to show yet.")))
    if last.failure and not seen.sees:
        said.append(Notice("warning", _blind(seen, last)))
    elif last.failure:
        said.append(Notice("note", f"The last check failed ({last.failure}). What you see is from the one before."))
    if published is not None and published.held:
        said.append(Notice("warning", _held(published.held, None if published.ahead_s else published.age_s())))
    if published is not None and published.ahead_s:
        said.append(Notice("warning", _set_back(published.ahead_s)))
    elif published is not None and published.late:
        said.append(Notice("warning", _stale(published.age_s(), seen.interval_s)))
    if published is not None and not published.stale and not published.snapshot.models:
        said.append(Notice("note", _empty(last)))
    if published is not None and not published.stale and last.keys_unread and not last.failure:
        said.append(Notice("note", f"{last.keys_unread} keys could not be read in the last check: what they hold is unknown."))
    said.extend(Notice("note", words) for words in _about_the_last_check(seen, last))
    return tuple(said)


def _about_the_last_check(seen: Watch, last: CrawlFacts) -> list[str]:
    said = [first_check(seen)] if is_news(seen) else []
    if last.split:
        said.append(f"The swarm is split: {last.split}. We show what we reach.")
    down = [state for state in last.addresses if not state.up]
    if down and last.bootstraps_up:
        listed = "; ".join(
            f"…{state.peer_id[-6:]} over {state.family} {state.endpoint}: {state.detail or state.step}" for state in down
        )
        said.append(f"{len(down)} of {len(last.addresses)} bootstrap addresses do not answer ({listed}).")
    if last.confirmed:
        said.append(f"The last check was doubted, then confirmed: {_ended(last.confirmed)}")
    if seen.overrun:
        said.append(f"The last check took {ago(last.duration_s)}, longer than the {seen.interval_s:g} s between two checks.")
    return said


def _held(reason: str, age_s: float | None, shown: str = "What you see is from before.") -> str:
    shown = shown if age_s is None else f"What you see is from {ago(age_s)} ago."
    held = f"What we see now is hard to believe, so it is held back: {_ended(reason)} {shown}"
    return f"{held} Until a second look confirms it, nothing is advised and no downtime is counted."


def _blind(seen: Watch, last: CrawlFacts) -> str:
    since = f" since {Moment(seen.failing_since, seen.read_at).clock}" if seen.failing_since is not None else ""
    peers = f"{last.bootstraps_up} of {len(last.bootstraps)} bootstrap peers answered; " if last.bootstraps else ""
    blind = f"We cannot see the swarm{since}: {peers}{_ended(last.failure)}"
    return f"{blind} This says nothing about the servers. No downtime is counted."


def _ended(words: str) -> str:
    return words if words.endswith((".", "?", "!")) else f"{words}."


def _stale(age_s: float, interval_s: float) -> str:
    return f"Last check {ago(age_s)} ago (expected every {interval_s:g} s). Servers may have come or gone since."


def _set_back(ahead_s: float) -> str:
    when = f"the last check is dated {ago(ahead_s)} ahead, so that nobody can say how old it is"
    return f"This monitor's clock was set back: {when}. The next check puts it right. This says nothing about the servers."


def _empty(last: CrawlFacts) -> str:
    total = len(last.bootstraps)
    return (
        f"No model has been announced in this swarm yet. We reached {last.bootstraps_up} of {total} bootstrap "
        f"{'peer' if total == 1 else 'peers'}. Start the first server with sepal serve MODEL_FOLDER --initial-peers ADDRESS."
    )
