"""What is new since the stream spoke last. Pure: two states in, events out.

What was not seen is not told: while the monitor is blind there are no events of blocks, and the last state that was believed
is what the next one is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from monitor.published import Standing, Watch, rfc3339, standings
from swarm.snapshot import PeerState

BLOCK_EVENTS = 200
"""Of one crawl. A swarm that changes more than that is told as a whole, by the snapshot."""
MODELS_TOLD = 200
"""In one snapshot; the largest public swarm had ten."""


class Kind(StrEnum):
    SNAPSHOT = "snapshot"
    BLOCK = "block"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class Told:
    """`blocks` are servers online by model and block, None where that is not known; `open` the ids of open incidents."""

    observed_at: str | None = None
    stale: bool = True
    blocks: Mapping[str, Sequence[int | None]] | None = None
    open: Sequence[int] = ()

    def as_json(self) -> dict[str, Any]:
        return {"observed_at": self.observed_at, "stale": self.stale, "blocks": self.blocks, "open": list(self.open)}


def told_from(stored: Mapping[str, Any]) -> Told:
    return Told(**stored) if stored else Told()


def snapshot_data(seen: Watch, found: Iterable[Standing] | None = None) -> dict[str, Any]:
    """The swarm in short. The figures are those of the page."""
    published = seen.published
    found = standings(published) if found is None and published else found or []
    return {
        "swarm": seen.swarm,
        "observed_at": rfc3339(published.snapshot.at) if published else None,
        "stale": not seen.sees,
        "expected_interval_s": seen.interval_s,
        "models": [_model(item) for item in list(found)[:MODELS_TOLD]],
    }


def _model(item: Standing) -> dict[str, Any]:
    return {
        "prefix": item.model.prefix,
        "verdict": item.verdict.value,
        "sentence": item.sentence,
        "min_redundancy": None if item.stale else item.coverage.min_redundancy,
        "servers_online": None if item.stale else sum(s.state is PeerState.ONLINE for s in item.model.servers),
    }


def now_told(seen: Watch, before: Told, still_open: Sequence[int]) -> Told:
    published = seen.published
    if published is None:
        return Told(before.observed_at, True, before.blocks, still_open)
    blocks = before.blocks
    if seen.sees:
        blocks = {item.model.prefix: [b.redundancy for b in item.coverage.blocks] for item in standings(published)}
    return Told(rfc3339(published.snapshot.at), not seen.sees, blocks, still_open)


def changes(before: Told, now: Told, snapshot: dict[str, Any], incidents: Iterable[dict[str, Any]]) -> list[tuple[Kind, Any]]:
    """In the order in which they are told. `incidents` are the documents of those that opened or closed since."""
    said: list[tuple[Kind, Any]] = []
    if (before.observed_at, before.stale) != (now.observed_at, now.stale):
        said.append((Kind.SNAPSHOT, snapshot))
    if before.blocks is not None and now.blocks is not None and not now.stale:
        found = list(block_changes(before.blocks, now.blocks, now.observed_at))
        said += [(Kind.BLOCK, change) for change in found[:BLOCK_EVENTS]]
    return said + [(Kind.INCIDENT, document) for document in incidents]


def block_changes(
    before: Mapping[str, Sequence[int | None]], now: Mapping[str, Sequence[int | None]], at: str | None
) -> Iterable[dict[str, Any]]:
    """Runs of blocks that went from one number of servers to another. A number that is not known is no change."""
    for prefix in sorted(now.keys() & before.keys()):
        run: dict[str, Any] | None = None
        for block, (was, new) in enumerate(zip(before[prefix], now[prefix], strict=False)):
            changed = was is not None and new is not None and was != new
            if run is not None and changed and run["end"] == block and (run["from"], run["to"]) == (was, new):
                run["end"] = block + 1
                continue
            if run is not None:
                yield run
            run = {"model": prefix, "start": block, "end": block + 1, "from": was, "to": new, "at": at} if changed else None
        if run is not None:
            yield run
