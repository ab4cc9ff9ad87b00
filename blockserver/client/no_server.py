"""The one sentence for blocks that nobody serves: which, since when, and where to look. Pure but for asking a monitor."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from blockserver.site import read_models
from blockserver.threads import in_thread
from swarm.errors import MissingBlocks, RemoteError
from swarm.wire.spans import in_words, runs

LONG_AGO = timedelta(hours=12)
"""After so long the day is said as well."""


def no_server(
    blocks: Iterable[int], since: float, *, now: float, page: str | None = None, last_words: str | None = None
) -> MissingBlocks:
    """`since` and `now` in Unix seconds. `last_words` are those of a server that is announced but did not serve."""
    missing = tuple(sorted(set(blocks)))
    which = in_words(runs(missing))
    what = "no server that answers" if last_words else "no server"
    sentence = f"{which} {'has' if len(missing) == 1 else 'have'} {what} since {_moment(since, now)}"
    if last_words:
        sentence += f" (the last one: {last_words})"
    return MissingBlocks(f"{sentence}; see {page}" if page else sentence, missing)


def page_of(monitor: str, prefix: str) -> str:
    """Of the model, for people."""
    return f"{monitor.rstrip('/')}/m/{prefix}"


async def broken_since(monitor: str, prefix: str) -> float | None:
    """Unix seconds since which the monitor has seen the model broken; None where it has not, or does not say."""
    try:
        items = await in_thread("monitor", lambda: read_models(monitor))
    except RemoteError:
        return None
    for item in items:
        if item.get("prefix") == prefix and item.get("verdict") == "broken" and isinstance(item.get("since"), str):
            try:
                return datetime.fromisoformat(item["since"]).timestamp()
            except ValueError:
                return None
    return None


def _moment(since: float, now: float) -> str:
    at = datetime.fromtimestamp(since, UTC)
    recent = datetime.fromtimestamp(now, UTC) - at < LONG_AGO
    return at.strftime("%H:%M UTC" if recent else "%Y-%m-%d %H:%M UTC")
