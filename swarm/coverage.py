"""Who holds each block of a model, and what that means: can it run, where is it thin, which block is the slowest.

The page, the JSON, the metrics and the hints all call this, so that they show the same figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """`throughput` is the sum in tokens per second over online servers that say theirs; None where none of them does."""

    index: int
    online: tuple[str, ...]
    joining: tuple[str, ...]
    throughput: float | None
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
        return "runs; every block has two or more servers"


def coverage(model: Model) -> Coverage:
    online = _holders(model, PeerState.ONLINE)
    joining = _holders(model, PeerState.JOINING)
    blocks = tuple(
        Block(
            index=index,
            online=tuple(server.peer_id for server in online[index]),
            joining=tuple(server.peer_id for server in joining[index]),
            throughput=_sum_of_known(online[index]),
            read=index not in model.unread_blocks,
        )
        for index in range(model.num_blocks)
    )
    holes = runs(block.index for block in blocks if block.redundancy == 0)
    unread = runs(block.index for block in blocks if block.redundancy is None)
    thin = runs(block.index for block in blocks if block.redundancy is not None and 0 < block.redundancy < THIN_REDUNDANCY)
    verdict = _verdict(holes, bool(unread) or model.at_least, thin)
    return Coverage(model.prefix, blocks, verdict, holes, thin, unread, model.at_least)


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


def _sum_of_known(servers: list[Server]) -> float | None:
    # Sorted, since a sum of floats depends on its order and the figure must not depend on that of the records.
    known = [server.record.throughput for server in servers if server.record.throughput is not None]
    return sum(sorted(known)) if known else None


def _verdict(holes: tuple[Span, ...], unseen: bool, thin: tuple[Span, ...]) -> Verdict:
    if holes:
        return Verdict.BROKEN
    if unseen:
        return Verdict.UNKNOWN
    return Verdict.THIN if thin else Verdict.COMPLETE


def _has(spans: tuple[Span, ...]) -> str:
    return "has" if len(spans) == 1 and len(spans[0]) == 1 else "have"
