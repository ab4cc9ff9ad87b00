"""What the overview and a model's page show, ready to print: words, symbols, rows, paths. Pure; the templates only place it.

A figure that was not shared says so; it is never 0.
"""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.drawing.packed import Packed, packed
from monitor.drawing.speed import Spread, Steps, spread, steps
from monitor.drawing.strips import Shape, strip
from monitor.listing import Listing, View, listing
from monitor.notices import Notice, notices
from monitor.published import Published, Standing, Watch, believed_rates_of, name_of, standing, standings
from monitor.rates.words import of_canary
from monitor.serving import shown_state
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
    short,
    unread_words,
)
from monitor.times import Checked, checked
from monitor.verdicts import Banner, Cell, banner, cells, level_of
from swarm.coverage import Verdict
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.spans import in_words

LABELLED = 40
"""So many servers get a row each with their name; more are packed."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model on the overview."""

    prefix: str
    name: str
    banner: Banner
    num_blocks: int
    strip: tuple[Shape, ...]
    facts: tuple[str, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class BootstrapLine:
    short_id: str
    up: bool


@dataclass(frozen=True, slots=True)
class OverviewPage:
    title: str
    symbol: str
    level: str
    heading: str
    banner: Banner | None
    notices: tuple[Notice, ...]
    checked: Checked | None
    models: tuple[ModelCard, ...]
    dropped: DroppedNote | None
    unread: str
    entrances: tuple[EntranceRow, ...]
    bootstraps: tuple[BootstrapLine, ...]
    crawl: str
    servers: int


@dataclass(frozen=True, slots=True)
class BarRow:
    """One server with its name beside its bar."""

    label: str
    name: str
    level: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Speed:
    steps: Steps | None
    spread: Spread | None
    words: str
    spread_words: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    title: str
    prefix: str
    name: str
    repository: str | None
    repository_url: str | None
    num_blocks: int
    size: str
    banner: Banner
    notices: tuple[Notice, ...]
    checked: Checked | None
    cells: tuple[Cell, ...]
    gaps: tuple[GapRow, ...]
    all_together: str
    listing: Listing
    servers: tuple[ServerLine, ...]
    packed: Packed | None
    rows: tuple[BarRow, ...]
    speed: Speed
    dropped: DroppedNote | None
    unread: str
    stale: bool
    when: str
    at_least: bool
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
        banner=cards[0].banner if len(cards) == 1 else None,
        notices=notices(seen),
        checked=checked(published) if published else None,
        models=cards,
        dropped=dropped_note(published, None) if published else None,
        unread=unread_words(published.snapshot.models, published.stale) if published else "",
        entrances=entrance_rows(seen.last_crawl),
        bootstraps=_bootstraps(seen),
        crawl=_crawl_words(seen),
        servers=len(_online(published)) if published else 0,
    )


def model_page(seen: Watch, prefix: str, view: View | None = None) -> ModelPage | None:
    published = seen.published
    model = published.snapshot.model(prefix) if published else None
    if published is None or model is None:
        return None
    item = standing(published, model)
    said = banner(published, item)
    table = listing([*model.servers, *published.absent.get(model.prefix, ())], view or View())
    web = (model.repository or "").startswith(("https://", "http://"))
    few = len(model.servers) <= LABELLED
    return ModelPage(
        title=f"{said.symbol} {said.words}",
        prefix=prefix,
        name=name_of(model),
        repository=model.repository,
        repository_url=model.repository if web else None,
        num_blocks=model.num_blocks,
        size=size_words(model),
        banner=said,
        notices=notices(seen),
        checked=checked(published),
        cells=cells(item),
        gaps=gap_rows(published, item),
        all_together=item.coverage.all_together,
        listing=table,
        servers=server_lines(published, model, table.servers),
        packed=None if few else _packed(item),
        rows=_bar_rows(model) if few else (),
        speed=_speed(item, believed_rates_of(published, model)),
        dropped=dropped_note(published, prefix),
        unread=unread_words((model,), item.stale),
        stale=item.stale,
        when=f"when last checked, {published.when}" if item.stale else "",
        at_least=model.at_least,
        conflict=model.conflict,
        route=_route(item),
        canary=of_canary(published.canaries.get(prefix), published.read_at),
    )


def _online(published: Published) -> set[str]:
    """Peers, each once however many models it serves."""
    models = published.snapshot.models
    return {server.peer_id for model in models for server in model.servers if server.state is PeerState.ONLINE}


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
            return "?", "unknown", "Unknown: first check running"
        if not seen.sees:
            return "?", "unknown", "Unknown: we cannot see the swarm"
        return "?", "unknown", "No model has been announced in this swarm yet"
    if len(cards) == 1:
        return cards[0].banner.symbol, cards[0].banner.level, cards[0].banner.words
    worst = cards[0].banner
    if worst.level == "unknown":
        unknown = sum(card.banner.level == "unknown" for card in cards)
        return worst.symbol, worst.level, f"Unknown: {unknown} of {len(cards)} models"
    broken = sum(card.banner.level == "broken" for card in cards)
    if broken:
        return worst.symbol, worst.level, f"{broken} of {len(cards)} models cannot run"
    return worst.symbol, worst.level, f"All {len(cards)} models run"


def _card(published: Published, item: Standing) -> ModelCard:
    covered, model = item.coverage, item.model
    online = sum(server.state is PeerState.ONLINE for server in model.servers)
    servers = f"{online} {'server' if online == 1 else 'servers'}"
    facts = [size_words(model), f"{servers} online when last checked" if item.stale else f"{servers} online"]
    if not item.stale and covered.min_redundancy is not None:
        facts.append(f"lowest redundancy {covered.min_redundancy}")
    if not item.stale and covered.bottleneck is not None and covered.bottleneck.throughput is not None:
        facts.append(f"slowest block {covered.bottleneck.index}: {covered.bottleneck.throughput:,.0f} tok/s")
    levels = [level_of(block.redundancy) for block in covered.blocks]
    said = banner(published, item)
    return ModelCard(model.prefix, name_of(model), said, model.num_blocks, strip(levels), tuple(facts), item.stale)


def size_words(model: Model) -> str:
    """`80 blocks`, or `at least 9 blocks`."""
    blocks = "1 block" if model.num_blocks == 1 else f"{model.num_blocks} blocks"
    return f"at least {blocks}" if model.at_least else blocks


def _bootstraps(seen: Watch) -> tuple[BootstrapLine, ...]:
    last = seen.last_crawl
    return tuple(BootstrapLine(short(peer), up) for peer, up in sorted(last.bootstraps.items())) if last else ()


def _crawl_words(seen: Watch) -> str:
    last = seen.last_crawl
    if last is None:
        return "No check has ended yet."
    took = f"The last check took {last.duration_s:.1f} s; one is due every {seen.interval_s:g} s."
    unread = f" {last.keys_unread} keys were not answered for." if last.keys_unread else ""
    return took + unread


def _packed(item: Standing) -> Packed:
    shown = [(server.span, _bar_level(server)) for server in item.model.servers if server.state in _DRAWN]
    return packed(item.model.num_blocks, shown, item.coverage.holes)


_DRAWN = (PeerState.ONLINE, PeerState.JOINING, PeerState.UNREACHABLE, PeerState.LEAVING, PeerState.NOT_CHECKED)


def _bar_level(server: Server) -> str:
    return server.state.value.replace(" ", "-")


def _bar_rows(model: Model) -> tuple[BarRow, ...]:
    shown = [server for server in model.servers if server.state in _DRAWN and server.span.start < model.num_blocks]
    return tuple(
        BarRow(
            short(server.peer_id),
            server.record.public_name or "",
            shown_state(server).replace(" ", "-"),
            server.span.start,
            min(server.span.end, model.num_blocks) - server.span.start,
        )
        for server in shown
    )


def _speed(item: Standing, rates: Mapping[str, float]) -> Speed:
    values = [block.throughput for block in item.coverage.blocks]
    own = [rates[s.peer_id] for s in item.model.servers if s.state is PeerState.ONLINE and s.peer_id in rates]
    return Speed(
        steps(values),
        spread(own),
        _slowest_words(values, in_words(item.coverage.holes) if item.coverage.holes else "", item.stale),
        _spread_words(own),
    )


def _slowest_words(values: Sequence[float | None], missing: str, stale: bool) -> str:
    """`missing` names the blocks that have no server, or had none where that is long ago."""
    known = [value for value in values if value is not None]
    if not known:
        return "No server said what it managed." if stale else "No server says what it manages."
    low = min(known)
    middle = f"Middle: {statistics.median(known):,.0f} tok/s. As far as servers are believed."
    slowest = f"block {values.index(low)}, {low:,.0f} tok/s"
    if stale:
        through = f"Nothing got through {missing}. " if missing else ""
        return f"When last checked: {through}Slowest: {slowest}. {middle}"
    if missing:
        return f"Nothing gets through {missing}. Slowest of the others: {slowest}. {middle}"
    untold = len(values) - len(known)
    rest = f" Of {untold} {'block' if untold == 1 else 'blocks'} it is not known." if untold else ""
    return f"Slowest: {slowest}: what a client gets at best. {middle}{rest}"


def _spread_words(own: Sequence[float]) -> str:
    found = spread(own)
    if found is None:
        return ""
    return (
        "By server: "
        + ", ".join(f"{words} {value:,.0f}" for words, (_, _, value) in zip(_MARKS, found.marks, strict=True))
        + " tok/s."
    )


_MARKS = ("a tenth below", "half below", "nine tenths below")
