"""Which models one crawl reads, and under how many of their block keys: as much as one crawl can afford.

Pure but for the lots it draws. The index is open to anyone, and each entry costs its blocks: models that servers have answered
for come first, and of the others those that were never read yet, so that no flood of entries keeps another model waiting for
ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from monitor.sizes import Stood
from swarm.snapshot import Dropped, Index, Reading, Snapshot
from swarm.wire.keys import MODELS_KEY, block_uid

MAX_KEYS = 60_000
"""Block keys read in one crawl: ten times the largest public swarm."""
MOST_FOR_EITHER = 0.75
"""So large a share of them at most is for models that servers have answered for, and so large a share for the others: anyone
can name models without number, and one server can answer for a great many."""
SIZED_AT_ONCE = 8
"""Prefixes whose size is looked for in one crawl, beside those that the operator has named."""
SIZED_UP_TO = 256
"""Blocks that such a prefix is looked for under: twice the largest open model."""
NOT_SIZED_YET = "not-sized-yet"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`keys` holds by prefix how many block keys are to be read; `left` is what the crawl could read besides."""

    keys: Mapping[str, int]
    left: int
    too_many: tuple[Dropped, ...] = ()
    waiting: tuple[Dropped, ...] = ()


def wanted(
    index: Index,
    before: Mapping[str, Stood],
    look_for: Collection[str],
    served: Sequence[str],
    previous: Snapshot | None,
    lot: Callable[[], float] = random.random,
) -> Wanted:
    """`before` is what stood of each model that is known, `served` are those of which a server has ever answered, the longest
    known first. `lot` gives numbers from 0 to 1 that nobody can foresee."""
    unsized = (index.unsized | before.keys() | frozenset(look_for)) - index.claims.keys()
    unsized = frozenset(p for p in unsized if p not in before or before[p].at_least)
    drawn, waiting = _drawn(unsized, frozenset(look_for), _cursor(previous))
    least: dict[str, int] = {}
    most: dict[str, int] = {}
    for prefix in index.claims.keys() | before.keys() | drawn:
        claims = index.claims.get(prefix, {})
        known = before.get(prefix)
        sizes = [*claims, *([known.num_blocks] if known is not None else []), *([SIZED_UP_TO] if prefix in drawn else [])]
        least[prefix] = known.num_blocks if known is not None else min(sizes)
        most[prefix] = max(sizes)
    place = {prefix: n for n, prefix in enumerate(served)}
    first = [prefix for prefix in least if prefix in place or prefix in look_for]
    first.sort(key=lambda prefix: (prefix not in look_for, place.get(prefix, 0), prefix))
    # Each key has the same chance: whoever fills the index with names can neither be smaller nor sort before all others.
    others = sorted(sorted(least.keys() - set(first)), key=lambda prefix: (prefix in before, lot() * least[prefix]))
    keys, left, too_many = _granted((first, others), least, most)
    return Wanted(keys, left, tuple(too_many), tuple(_waits(p) for p in waiting if p not in before))


def beyond(chosen: Wanted, readings: Mapping[str, Reading]) -> dict[str, int]:
    """Models under whose first key beyond what was wanted somebody stands, and how many keys to read of them: whoever stands
    there says that the model is larger than was thought."""
    found: dict[str, int] = {}
    left = chosen.left
    for prefix, count in chosen.keys.items():
        stands = readings[prefix].entries.get(block_uid(prefix, count)) if prefix in readings else None
        if stands and count < SIZED_UP_TO <= left:
            found[prefix] = SIZED_UP_TO
            left -= SIZED_UP_TO
    return found


def _granted(
    groups: tuple[list[str], list[str]], least: Mapping[str, int], most: Mapping[str, int]
) -> tuple[dict[str, int], int, list[Dropped]]:
    """What everyone needs first, then what some would like: so that no claim of one model takes the keys of another."""
    keys: dict[str, int] = {}
    dropped: list[Dropped] = []
    left = MAX_KEYS
    for group in groups:
        room = min(left, int(MOST_FOR_EITHER * MAX_KEYS))
        for prefix in group:
            if least[prefix] > room:
                detail = f"{least[prefix]} blocks are more than are left of the {MAX_KEYS:,} that one crawl reads"
                dropped.append(Dropped(MODELS_KEY, repr(prefix), "too-many-models", detail))
                continue
            keys[prefix] = least[prefix]
            room -= least[prefix]
            left -= least[prefix]
    answered = set(groups[0])
    for prefix in sorted(keys, key=lambda prefix: (prefix not in answered, most[prefix] - least[prefix])):
        more = most[prefix] - least[prefix]
        if more <= left:
            keys[prefix] += more
            left -= more
    return keys, left, dropped


def _drawn(unsized: frozenset[str], named: frozenset[str], cursor: str) -> tuple[frozenset[str], list[str]]:
    """Those that the operator has named, and of the others as many as fit, in turns; and who waits, the next one first."""
    others = sorted(unsized - named, key=repr)
    others = [p for p in others if repr(p) >= cursor] + [p for p in others if repr(p) < cursor]
    return (unsized & named) | frozenset(others[:SIZED_AT_ONCE]), others[SIZED_AT_ONCE:]


def _cursor(previous: Snapshot | None) -> str:
    """Whose turn it is: the first that had to wait the last time."""
    records: Iterable[Dropped] = previous.dropped if previous is not None else ()
    return next((record.subkey for record in records if record.reason == NOT_SIZED_YET), "")


def _waits(prefix: str) -> Dropped:
    detail = f"its entry says no usable size, and its keys are looked through in turns, {SIZED_AT_ONCE} models at a check"
    return Dropped(MODELS_KEY, repr(prefix), NOT_SIZED_YET, detail)
