"""Which blocks have no server, and since when this gateway has seen it so. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from swarm.wire.spans import in_words, runs


@dataclass
class Sight:
    """`monitor` is the address of the model's page on the site that watches the swarm; None where it is not known."""

    monitor: str | None = None
    missing_since: dict[int, float] = field(default_factory=dict)
    """Unix seconds, by block."""
    looked_at: float | None = None
    """None before the first look."""
    at_first_look: frozenset[int] = frozenset()
    """Blocks that were missing when this gateway came: they may have been for long."""

    def looked(self, missing: Collection[int], at: float) -> None:
        """The whole model was looked at."""
        if self.looked_at is None:
            self.at_first_look = frozenset(missing)
        self.at_first_look &= frozenset(missing)
        self.missing_since = {block: self.missing_since.get(block, at) for block in missing}
        self.looked_at = at

    def met(self, missing: Collection[int], at: float) -> None:
        """Somebody's answer found these without server, between two looks."""
        for block in missing:
            self.missing_since.setdefault(block, at)

    def sentence(self, blocks: Collection[int] | None = None) -> str:
        """For `blocks`, or for all that are missing; empty where none is."""
        missing = self.missing_since.keys() if blocks is None else blocks
        if not missing:
            return ""
        held = f"{in_words(runs(missing))} {'has' if len(missing) == 1 else 'have'} no server"
        known = [self.missing_since[block] for block in missing if block in self.missing_since]
        since = f" since {_clock(min(known))}" if known else ""
        earlier = " or earlier" if known and self.at_first_look.intersection(missing) else ""
        return f"{held}{since}{earlier}{self._see()}"

    def _see(self) -> str:
        return f"; see {self.monitor}" if self.monitor else ""


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"
