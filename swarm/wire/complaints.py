"""Which blocks a client misses, out of the text of its error: Petals' `MissingBlocksError` in its wordings, and our own.

People paste these texts, and programs report them; the model's page shows the same blocks under `#bN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from swarm.wire.keys import MAX_BLOCKS

_MISSING = re.compile(r"no servers holding blocks?\s+(?P<petals>\[[\d,\s]*\]|\d+(?:\s*,\s*\d+)*)", re.IGNORECASE)
_OURS = re.compile(r"\bblocks?(?P<listed>(?:\s|,|\d|[–-]|and|blocks?)*)\s(?:has|have) no server\b", re.IGNORECASE)
_RUN = re.compile(r"(?P<first>\d+)(?:\s*[–-]\s*(?P<last>\d+))?")
LONGEST = 4_000
"""Characters that are looked at: longer is a traceback, whose last line says it all."""


def missing_blocks(text: str) -> frozenset[int]:
    """Empty where the text says nothing of the kind."""
    said = text[-LONGEST:]
    found = _MISSING.search(said)
    if found is not None:
        return _within(int(number) for number in re.findall(r"\d+", found["petals"])[:MAX_BLOCKS])
    ours = _OURS.search(said)
    runs = _RUN.finditer(ours["listed"]) if ours is not None else ()
    spans = [(int(run["first"]), int(run["last"] or run["first"])) for run in runs]
    return _within(block for first, last in spans for block in range(first, min(last, MAX_BLOCKS) + 1))


def _within(blocks: Iterable[int]) -> frozenset[int]:
    return frozenset(block for block in blocks if block < MAX_BLOCKS)
