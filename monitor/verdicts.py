"""A model's verdict and its blocks, ready to print: banner and cells. Pure.

A state is always symbol, word and colour: each level differs by the number or symbol inside as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from monitor.published import Published, Standing, ago, name_of
from monitor.tables import lost_on, parting
from monitor.times import Moment
from swarm.coverage import Block, Verdict
from swarm.wire.spans import in_words

SYMBOLS = {Verdict.COMPLETE: "✓", Verdict.THIN: "!", Verdict.BROKEN: "✕", Verdict.UNKNOWN: "?"}


_SINCE = {"complete": "Each by two servers or more since", "thin": "Thin since", "broken": "Missing since"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One block: `level` is its class of redundancy (n0, n1, n2, n3, n6, unknown), `text` what stands inside; `label` begins
    with it, so that whoever speaks what is seen finds it."""

    index: int
    text: str
    level: str
    label: str


@dataclass(frozen=True, slots=True)
class Banner:
    """The answer to "can I use it now?": `level` names the colour, `symbol` and `words` say the same without it. `last` says
    who left a hole and who is on the way."""

    level: str
    symbol: str
    words: str
    detail: str
    since: Moment | None
    last: str = ""
    help: str = ""

    @property
    def since_when(self) -> str:
        """What stands before the time since when it is so."""
        return _SINCE.get(self.level, "So since")


def banner(published: Published, item: Standing) -> Banner:
    name, covered = name_of(item.model), item.coverage
    words = f"{name} {item.sentence}"
    if item.verdict is Verdict.UNKNOWN:
        words = f"{name}: {item.sentence.replace('unknown: ', 'unknown — ', 1)}"
    served = sum(bool(block.online) for block in covered.blocks)
    blocks = f"{item.model.num_blocks} blocks{' that were seen' if item.model.at_least else ''}"
    all_are = served == item.model.num_blocks
    detail = f"All {blocks} are served." if all_are else f"{served} of {blocks} are served."
    if item.stale:
        detail = f"When last checked, {served} of {blocks} were served."
    return Banner(
        level=item.verdict.value,
        symbol=SYMBOLS[item.verdict],
        words=words,
        detail=detail,
        since=Moment(item.since, published.read_at) if item.since is not None and not item.stale else None,
        last=_last(published, item) if item.verdict is Verdict.BROKEN else "",
        help=f"Serve {in_words(covered.holes[:1])}" if item.verdict is Verdict.BROKEN else "",
    )


def _last(published: Published, item: Standing) -> str:
    """`Last: …RcvFJg, left normally; last seen 14:02 UTC. 1 server is loading it.`"""
    hole = item.coverage.holes[0]
    lost = lost_on(published, item, hole)
    said = [f"Last: {parting(lost[1], lost[2], published.read_at)}."] if lost else []
    coming = {peer for block in hole for peer in item.coverage.blocks[block].joining}
    if coming:
        loads = f"{len(coming)} {'server is' if len(coming) == 1 else 'servers are'} loading {in_words((hole,))}"
        said.append(f"{loads}{_how_far(published, item.model.prefix, coming)}.")
    return " ".join(said)


def _how_far(published: Published, prefix: str, coming: set[str]) -> str:
    """` (62 %, about 4 min)`, of the one that will be there first; empty where none of them tells."""
    told = [loading for peer in coming if (loading := published.loading.get((prefix, peer))) is not None]
    if not told:
        return ""
    now = published.read_at
    first = min(told, key=lambda loading: (loading.left_s(now) is None, loading.left_s(now) or 0.0, -loading.share))
    left_s = first.left_s(now)
    share = f"{'the first at ' if len(coming) > 1 else ''}{round(100 * first.share)} %"
    return f" ({share}, about {ago(max(1.0, left_s))})" if left_s is not None else f" ({share})"


def cells(item: Standing) -> tuple[Cell, ...]:
    found = (_cell(block) for block in item.coverage.blocks)
    return tuple(replace(cell, label=f"{cell.label}, when last checked") for cell in found) if item.stale else tuple(found)


def _cell(block: Block) -> Cell:
    count = block.redundancy
    if count is None:
        return Cell(block.index, "?", "unknown", f"? block {block.index} could not be read")
    if count == 0:
        return Cell(block.index, "✕", "n0", f"✕ no server online, block {block.index}")
    label = f"{count} {'server' if count == 1 else 'servers'} online, block {block.index}"
    return Cell(block.index, str(count), level_of(count), label)


def level_of(redundancy: int | None) -> str:
    """Thresholds that never move: a colour means a risk, and no rank."""
    if redundancy is None:
        return "unknown"
    if redundancy <= 2:
        return f"n{redundancy}"
    return "n3" if redundancy <= 5 else "n6"
