"""How far the first check of a swarm has come: while nothing is published yet, that is all there is to show. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SILENT_AFTER_S = 20.0
"""Who has given no sign of life for so long has ended, or hangs."""


class Stage(StrEnum):
    STARTING = "starting"
    ENTRANCES = "entrances"
    MODELS = "models"
    BLOCKS = "blocks"
    SERVERS = "servers"


Tell = Callable[[Stage, int, int], None]
"""The stage, how many of its parts are done, and of how many (0: not known)."""


def untold(stage: Stage, done: int, of: int) -> None:
    """Where nobody waits to hear it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`heard_at` is the last sign of life and `begun_at` the beginning of this check, in Unix seconds. `stage` is None where no
    crawl has reported: then both are when somebody first asked. `counts` holds done and total of each stage so far."""

    begun_at: float
    heard_at: float
    stage: Stage | None = None
    counts: Mapping[Stage, tuple[int, int]] = field(default_factory=dict)

    def silent(self, now: float) -> bool:
        return now - self.heard_at > SILENT_AFTER_S

    def as_json(self) -> dict[str, Any]:
        counts = {stage.value: list(count) for stage, count in self.counts.items()}
        return {"begun_at": self.begun_at, "heard_at": self.heard_at, "stage": self.stage, "counts": counts}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Progress:
        counts = {Stage(stage): (done, of) for stage, (done, of) in told["counts"].items()}
        return cls(told["begun_at"], told["heard_at"], Stage(told["stage"]) if told["stage"] else None, counts)
