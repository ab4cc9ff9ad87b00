"""With how many blocks servers are to fill holes: as many as they serve, or as many as fit. Nothing else is decided here.

A span was made shorter than what fits because a server is faster with it. So a longer one is asked for where that gives more
blocks a server, or the same ones with fewer reloads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from swarm.placement import Move, Promise, mend
from swarm.snapshot import Model


def longer_spans(
    model: Model, promises: Iterable[Promise], movable: Collection[str], capacities: Mapping[str, int]
) -> Mapping[str, int] | None:
    """`capacities` where they help to mend the model; None where present spans do as well."""
    kept = tuple(promises)
    present = mend(model, kept, movable=movable)
    longer = mend(model, kept, movable=movable, capacities=capacities)
    return capacities if _worth(longer) > _worth(present) else None


def _worth(moves: Iterable[Move]) -> tuple[int, int]:
    kept = tuple(moves)
    return len({block for move in kept for block in move.filled}), -len(kept)
