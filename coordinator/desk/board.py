"""Which ranges of blocks need action, worst first: too few servers, or all of them in one network or of one operator. Pure.

Who goes down together is `swarm.operators`' to say, as for the planner; here those are named for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from swarm.coverage import THIN_REDUNDANCY, Block, coverage
from swarm.operators import operator_of
from swarm.snapshot import Model, Server
from swarm.wire.spans import Span

TARGET = THIN_REDUNDANCY
KINDS = {"hole": "no server", "unread": "not read", "thin": "one server", "risk": "all in one network or of one operator"}
"""What a range may suffer from, worst first."""
SYMBOLS = {"hole": "✕", "unread": "?", "thin": "!", "risk": "◎"}


@dataclass(frozen=True, slots=True)
class Promised:
    """An open lease: who has promised to serve what."""

    id: str
    peer_id: str
    span: Span
    phase: str
    from_model: str = ""
    """Where the server is to change its model for it."""

    @property
    def words(self) -> str:
        change = f", from {self.from_model}" if self.from_model else ""
        return f"…{self.peer_id[-6:]} {self.phase}{change}"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a model beside the snapshot. `lows` is the least redundancy of a block over 24 hours where that was 0
    or 1; None where nobody watched. `since` is when a block's trouble began, in Unix seconds."""

    leases: tuple[Promised, ...] = ()
    lows: Mapping[int, int] | None = None
    since: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """`left` servers stay if the operator with the most servers there (`largest`) leaves. None: not known."""

    swarm: str
    prefix: str
    kind: str
    span: Span
    now: int | None
    low: str
    left: int | None
    largest: str
    joining: int
    leases: tuple[Promised, ...]
    since: float | None

    @property
    def blocks(self) -> str:
        return self.span.in_words()

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.kind]

    @property
    def what(self) -> str:
        return KINDS[self.kind]


@dataclass(frozen=True, slots=True)
class _Exposure:
    """One block: `left` if the one with the most servers on it goes."""

    block: Block
    left: int | None
    largest: str

    @property
    def kind(self) -> str:
        count = self.block.redundancy
        if count is None:
            return "unread"
        if count < TARGET:
            return "hole" if count == 0 else "thin"
        return "risk" if self.left == 0 else ""


def rows(swarm: str, model: Model, known: Known) -> tuple[Row, ...]:
    """The ranges below target or with one operator, worst first, then in order of blocks."""
    exposed = _exposures(model)
    found = []
    for key, group in groupby(exposed, key=lambda one: (one.kind, one.block.redundancy, one.left)):
        if key[0]:
            found.append(_row(swarm, model.prefix, list(group), known))
    order = list(KINDS)
    return tuple(sorted(found, key=lambda row: (order.index(row.kind), row.span)))


def next_risk(models: Iterable[Model]) -> str:
    """Where nothing needs action: the range that the loss of one operator would leave with the fewest servers."""
    found: list[tuple[int, str, Span, str]] = []
    for model in models:
        for key, group in groupby(_exposures(model), key=lambda one: (one.left, one.largest)):
            blocks = list(group)
            if key[0] is not None:
                found.append((key[0], model.prefix, Span(blocks[0].block.index, blocks[-1].block.index + 1), key[1]))
    if not found:
        return ""
    left, prefix, span, largest = min(found, key=lambda item: (item[0], -len(item[2]), item[1], item[2]))
    servers = "1 server" if left == 1 else f"{left} servers"
    return f"Next risk: {span.in_words()} of {prefix}, with {servers} left if {largest} leaves."


def _exposures(model: Model) -> list[_Exposure]:
    by_id = {server.peer_id: server for server in model.servers}
    return [_exposure(block, by_id) for block in coverage(model).blocks]


def _exposure(block: Block, by_id: Mapping[str, Server]) -> _Exposure:
    if block.redundancy is None:
        return _Exposure(block, None, "")
    operators = Counter(operator_of(by_id[peer_id]) for peer_id in block.online)
    if not operators:
        return _Exposure(block, 0, "")
    names = {operator: _named(operator, block, by_id) for operator in operators}
    # By name where several have as many, so that the same swarm always makes the same board.
    largest = min(operators, key=lambda operator: (-operators[operator], names[operator]))
    return _Exposure(block, block.redundancy - operators[largest], names[largest])


def _named(operator: str, block: Block, by_id: Mapping[str, Server]) -> str:
    """The first of its servers on this block, by name where it has one."""
    its = [by_id[peer_id] for peer_id in block.online if operator_of(by_id[peer_id]) == operator]
    names = sorted({server.record.public_name or f"…{server.peer_id[-6:]}" for server in its})
    return names[0] if len(names) == 1 else f"the network of {names[0]}"


def _row(swarm: str, prefix: str, group: Sequence[_Exposure], known: Known) -> Row:
    span = Span(group[0].block.index, group[-1].block.index + 1)
    names = sorted({one.largest for one in group if one.largest})
    ages = [known.since[block] for block in span if block in known.since]
    return Row(
        swarm=swarm,
        prefix=prefix,
        kind=group[0].kind,
        span=span,
        now=group[0].block.redundancy,
        low=_low(span, known.lows),
        left=group[0].left,
        largest=", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else ""),
        joining=min(len(one.block.joining) for one in group),
        leases=tuple(lease for lease in known.leases if lease.span.overlaps(span)),
        since=min(ages, default=None),
    )


def _low(span: Span, lows: Mapping[int, int] | None) -> str:
    if lows is None:
        return "not watched"
    low = min(lows.get(block, TARGET) for block in span)
    return str(low) if low < TARGET else f"{TARGET} or more"
