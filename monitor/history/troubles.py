"""Since when each block of a model lacks servers now, and who left it: what is open, seen block by block."""

from __future__ import annotations

import re
from dataclasses import dataclass

from monitor.hiding.models import hidden_list
from monitor.history.models import Incident
from monitor.history.rules import Kind

_STATE = {Kind.HOLE.value: "no-server", Kind.THIN.value: "one-server"}
_RUN = re.compile(r"(\d+)(?:–(\d+))?")


@dataclass(frozen=True, slots=True)
class Gone:
    peer_id: str
    how: str
    blocks: frozenset[int]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Of one block: it began after `after` (None: nobody had looked) and was first seen at `before`, in Unix seconds. The
    incident that it belongs to is shown to people once it is `confirmed`."""

    after: float | None
    before: float
    incident_id: int
    confirmed: bool
    left: tuple[Gone, ...]


def troubles(swarm: str, prefix: str) -> dict[tuple[str, int], Trouble]:
    """By state (`no-server`, `one-server`) and block. Two queries."""
    found: dict[tuple[str, int], Trouble] = {}
    hidden = hidden_list()
    for row in Incident.objects.filter(swarm=swarm, model__prefix=prefix, ended_before__isnull=True):
        left = tuple(Gone(hidden.shown(entry["peer_id"]), entry["how"], _blocks(entry["blocks"])) for entry in row.left)
        for block, (after, before) in row.current.items():
            found[_STATE[row.kind], int(block)] = Trouble(after, before, row.pk, row.confirmed_at is not None, left)
    return found


def _blocks(words: str) -> frozenset[int]:
    """`blocks 3–6, 9` as numbers: that is how the rules write down what a server left."""
    runs = [(int(first), int(last or first)) for first, last in _RUN.findall(words)]
    return frozenset(block for first, last in runs for block in range(first, last + 1))
