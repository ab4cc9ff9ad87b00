"""Who holds each block of a model, and what that means: can it run, where is it thin, which block is the slowest.

The page, the JSON, the metrics and the hints all call this, so that they show the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from swarm.operators import operators_of, what_is_shared
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.spans import Span, in_words, runs

THIN_REDUNDANCY = 2
"""A block with fewer online servers than this is lost with the next crash."""


class Verdict(StrEnum):
    COMPLETE = "complete"
    THIN = "thin"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Block:
    """`throughput` is the sum in tokens per second over online servers, as far as each is believed, and `reported` that of what
    they say themselves; None where nothing is known of any of them. `joining` are those that load it and may be waited for."""

    index: int
    online: tuple[str, ...]
    joining: tuple[str, ...]
    throughput: float | None
    reported: float | None
    read: bool

    @property
    def redundancy(self) -> int | None:
        """Servers online; None where the block's key could not be read and nobody is known to hold it: unknown is not zero."""
        return len(self.online) if self.online or self.read else None


@dataclass(frozen=True, slots=True)
class Coverage:
    prefix: str
    blocks: tuple[Block, ...]
    verdict: Verdict
    holes: tuple[Span, ...]
    thin: tuple[Span, ...]
    unread: tuple[Span, ...]
    together: tuple[Span, ...] = ()
    """Blocks with two or more servers online, all of which go down together."""
    shared: str = ""
    """What the servers of those blocks share, in words."""
    at_least: bool = False

    @property
    def unseen(self) -> tuple[Span, ...]:
        """What nobody can say anything of: blocks that could not be read, and the one after the last that was ever seen."""
        beyond = len(self.blocks)
        return (*self.unread, Span(beyond, beyond + 1)) if self.at_least else self.unread

    @property
    def min_redundancy(self) -> int | None:
        known = [block.redundancy for block in self.blocks]
        return None if self.verdict is Verdict.UNKNOWN else min((r for r in known if r is not None), default=None)

    @property
    def bottleneck(self) -> Block | None:
        """The block with the least known throughput: what a client gets at best."""
        known = [block for block in self.blocks if block.throughput is not None]
        return min(known, key=lambda block: (block.throughput or 0.0, block.index), default=None)

    def sentence(self) -> str:
        """What a visitor needs to know, in one line: can I use it now?"""
        if self.verdict is Verdict.BROKEN:
            return f"cannot run: {in_words(self.holes)} {_has(self.holes)} no server"
        if self.unread:
            return f"unknown: {in_words(self.unread)} could not be read"
        if self.at_least:
            return f"unknown: {at_least_words(len(self.blocks))}"
        if self.verdict is Verdict.THIN:
            return f"runs, but {in_words(self.thin)} {_has(self.thin)} only one server"
        return f"runs; every block has two or more servers{self.all_together}"

    @property
    def all_together(self) -> str:
        """Ends a sentence that every block has two servers; empty where that is all there is to say."""
        return f", but those of {in_words(self.together)} are all {self.shared}" if self.together else ""


def coverage(model: Model, rates: Mapping[str, float] | None = None) -> Coverage:
    """`rates`: the tokens per second that are believed, by peer id; they take the place of what the records say. Who decides
    or shows how fast blocks are gives them; without them reports count as they are."""
    online = _holders(model, PeerState.ONLINE)
    joining = _holders(model, PeerState.JOINING)
    blocks = tuple(
        Block(
            index=index,
            online=tuple(server.peer_id for server in online[index]),
            joining=tuple(server.peer_id for server in joining[index] if server.awaited),
            throughput=_sum_of_known(online[index], rates or {}),
            reported=_sum_of_known(online[index], {}),
            read=index not in model.unread_blocks,
        )
        for index in range(model.num_blocks)
    )
    holes = runs(block.index for block in blocks if block.redundancy == 0)
    unread = runs(block.index for block in blocks if block.redundancy is None)
    thin = runs(block.index for block in blocks if block.redundancy is not None and 0 < block.redundancy < THIN_REDUNDANCY)
    sole = _sole_operators(model, blocks)
    verdict = _verdict(holes, bool(unread) or model.at_least, thin)
    shared = what_is_shared(sole.values())
    return Coverage(model.prefix, blocks, verdict, holes, thin, unread, runs(sole), shared, model.at_least)


def _sole_operators(model: Model, blocks: tuple[Block, ...]) -> dict[int, str]:
    """Whose all servers of a block are, for blocks of several servers that go down together."""
    operators = operators_of(model)
    found: dict[int, str] = {}
    for block in blocks:
        if len(block.online) >= THIN_REDUNDANCY:
            first = operators[block.online[0]]
            if all(operators[peer_id] == first for peer_id in block.online):
                found[block.index] = first
    return found


def at_least_words(num_blocks: int) -> str:
    blocks = "block" if num_blocks == 1 else "blocks"
    return f"at least {num_blocks} {blocks} seen; how many the model has is not known"


def _holders(model: Model, state: PeerState) -> list[list[Server]]:
    holders: list[list[Server]] = [[] for _ in range(model.num_blocks)]
    for server in sorted(model.servers, key=lambda server: server.peer_id):
        if server.state is state:
            for index in range(server.span.start, min(server.span.end, model.num_blocks)):
                holders[index].append(server)
    return holders


def _sum_of_known(servers: list[Server], rates: Mapping[str, float]) -> float | None:
    # Sorted, since a sum of floats depends on its order and the figure must not depend on that of the records.
    each = [rates.get(server.peer_id, server.record.throughput) for server in servers]
    known = sorted(rate for rate in each if rate is not None)
    return sum(known) if known else None


def _verdict(holes: tuple[Span, ...], unseen: bool, thin: tuple[Span, ...]) -> Verdict:
    if holes:
        return Verdict.BROKEN
    if unseen:
        return Verdict.UNKNOWN
    return Verdict.THIN if thin else Verdict.COMPLETE


def _has(spans: tuple[Span, ...]) -> str:
    return "has" if len(spans) == 1 and len(spans[0]) == 1 else "have"
