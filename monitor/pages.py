"""What the pages show, ready to print: words, symbols and rows. Pure; the templates only place it.

A state is always symbol, word and colour. A figure that was not shared says so; it is never 0.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from monitor.notices import Notice, notices
from monitor.published import Published, Standing, Watch, name_of, standing, standings
from monitor.rates.words import of_canary
from monitor.tables import (
    NOT_SHARED,
    DroppedNote,
    EntranceRow,
    GapRow,
    ServerLine,
    dropped_note,
    entrance_rows,
    gap_rows,
    server_lines,
)
from monitor.times import Checked, Moment, checked
from swarm.coverage import Block, Verdict
from swarm.snapshot import Model, PeerState

SYMBOLS = {Verdict.COMPLETE: "✓", Verdict.THIN: "!", Verdict.BROKEN: "✕", Verdict.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One block: `level` is its class of redundancy (n0, n1, n2, n3, n6, unknown), `text` what stands inside."""

    index: int
    text: str
    level: str
    label: str


@dataclass(frozen=True, slots=True)
class Banner:
    """The answer to "can I use it now?": `level` names the colour, `symbol` and `words` say the same without it."""

    level: str
    symbol: str
    words: str
    detail: str
    since: Moment | None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model on the overview."""

    prefix: str
    name: str
    banner: Banner
    num_blocks: int
    cells: tuple[Cell, ...]
    facts: tuple[str, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class OverviewPage:
    title: str
    symbol: str
    level: str
    heading: str
    notices: tuple[Notice, ...]
    checked: Checked | None
    models: tuple[ModelCard, ...]
    dropped: DroppedNote | None
    entrances: tuple[EntranceRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelPage:
    title: str
    prefix: str
    name: str
    repository: str | None
    repository_url: str | None
    num_blocks: int
    banner: Banner
    notices: tuple[Notice, ...]
    checked: Checked | None
    cells: tuple[Cell, ...]
    gaps: tuple[GapRow, ...]
    servers: tuple[ServerLine, ...]
    servers_left_out: int
    dropped: DroppedNote | None
    stale: bool
    conflict: str
    route: str
    canary: str = ""
    not_shared: str = NOT_SHARED

    @property
    def json(self) -> str:
        return f"/api/v1/models/{self.prefix}"


@dataclass(frozen=True, slots=True)
class AbsentPage:
    """A model that the swarm does not announce; `others` are those that it does: prefix and number of servers, `meant` the one
    whose name is nearest."""

    title: str
    prefix: str
    notices: tuple[Notice, ...]
    others: tuple[tuple[str, int], ...]
    meant: str | None = None


def overview_page(seen: Watch) -> OverviewPage:
    published = seen.published
    found = standings(published) if published else []
    cards = tuple(_card(published, item) for item in found) if published else ()
    symbol, level, heading = _overall(seen, cards)
    return OverviewPage(
        title=f"{symbol} {heading}",
        symbol=symbol,
        level=level,
        heading=heading,
        notices=notices(seen),
        checked=checked(published) if published else None,
        models=cards,
        dropped=dropped_note(published, None) if published else None,
        entrances=entrance_rows(seen.last_crawl),
    )


def model_page(seen: Watch, prefix: str) -> ModelPage | None:
    published = seen.published
    model = published.snapshot.model(prefix) if published else None
    if published is None or model is None:
        return None
    item = standing(published, model)
    banner = _banner(published, item)
    lines, left_out = server_lines(published, model)
    web = (model.repository or "").startswith(("https://", "http://"))
    return ModelPage(
        title=f"{banner.symbol} {banner.words}",
        prefix=prefix,
        name=name_of(model),
        repository=model.repository,
        repository_url=model.repository if web else None,
        num_blocks=model.num_blocks,
        banner=banner,
        notices=notices(seen),
        checked=checked(published),
        cells=_cells(item),
        gaps=gap_rows(published, item),
        servers=lines,
        servers_left_out=left_out,
        dropped=dropped_note(published, prefix),
        stale=item.stale,
        conflict=model.conflict,
        route=_route(item),
        canary=of_canary(published.canaries.get(prefix), published.read_at),
    )


def _route(item: Standing) -> str:
    """A client's view, where it says more than the coverage does."""
    if item.stale or item.route.unknown or item.verdict is Verdict.BROKEN:
        return ""
    if item.route.exists:
        return f"A client finds a way {item.route.words}."
    return f"A client finds no way now: {item.route.words}."


def absent_page(seen: Watch, prefix: str) -> AbsentPage:
    models = seen.published.snapshot.models if seen.published else ()
    near = difflib.get_close_matches(prefix.lower(), [model.prefix.lower() for model in models], n=1)
    meant = next((model.prefix for model in models if near and model.prefix.lower() == near[0]), None)
    others = tuple((model.prefix, len(model.servers)) for model in models)
    return AbsentPage(f"No servers for prefix {prefix}", prefix, notices(seen), others, meant)


def _overall(seen: Watch, cards: tuple[ModelCard, ...]) -> tuple[str, str, str]:
    """Symbol, level and sentence of the whole swarm: that of its only model where it has one."""
    if not cards:
        if seen.published is None and seen.last_crawl is None:
            return "?", "unknown", "First check running"
        if not seen.sees:
            return "?", "unknown", "We cannot see the swarm"
        return "?", "unknown", "No model has been announced in this swarm yet"
    if len(cards) == 1:
        return cards[0].banner.symbol, cards[0].banner.level, cards[0].banner.words
    worst = cards[0].banner
    if worst.level == "unknown":
        return (
            worst.symbol,
            worst.level,
            f"Unknown: {sum(card.banner.level == 'unknown' for card in cards)} of {len(cards)} models",
        )
    broken = sum(card.banner.level == "broken" for card in cards)
    if broken:
        return worst.symbol, worst.level, f"{broken} of {len(cards)} models cannot run"
    return worst.symbol, worst.level, f"All {len(cards)} models run"


def _card(published: Published, item: Standing) -> ModelCard:
    covered, model = item.coverage, item.model
    online = sum(server.state is PeerState.ONLINE for server in model.servers)
    facts = [f"{model.num_blocks} blocks", f"{online} {'server' if online == 1 else 'servers'} online"]
    if not item.stale and covered.min_redundancy is not None:
        facts.append(f"lowest redundancy {covered.min_redundancy}")
    if not item.stale and covered.bottleneck is not None and covered.bottleneck.throughput is not None:
        facts.append(f"slowest block {covered.bottleneck.index}: {covered.bottleneck.throughput:,.0f} tok/s")
    return ModelCard(
        model.prefix, name_of(model), _banner(published, item), model.num_blocks, _cells(item), tuple(facts), item.stale
    )


def _banner(published: Published, item: Standing) -> Banner:
    name, covered = name_of(item.model), item.coverage
    words = f"{name} {item.sentence}"
    if item.verdict is Verdict.UNKNOWN:
        words = f"{name}: {item.sentence.replace('unknown: ', 'unknown — ', 1)}"
    served = sum(bool(block.online) for block in covered.blocks)
    detail = f"{served} of {item.model.num_blocks} blocks are served."
    if item.stale:
        detail = f"When last checked, {served} of {item.model.num_blocks} blocks were served."
    return Banner(
        level=item.verdict.value,
        symbol=SYMBOLS[item.verdict],
        words=words,
        detail=detail,
        since=Moment(item.since, published.read_at) if item.since is not None and not item.stale else None,
    )


def _cells(item: Standing) -> tuple[Cell, ...]:
    return tuple(_cell(block, item.model) for block in item.coverage.blocks)


def _cell(block: Block, model: Model) -> Cell:
    count = block.redundancy
    if count is None:
        return Cell(block.index, "?", "unknown", f"? block {block.index} could not be read")
    if count == 0:
        return Cell(block.index, "✕", "n0", f"✕ no server online, block {block.index}")
    level = "n1" if count == 1 else "n2" if count == 2 else "n3" if count <= 5 else "n6"
    return Cell(block.index, str(count), level, f"{count} {'server' if count == 1 else 'servers'} online, block {block.index}")
