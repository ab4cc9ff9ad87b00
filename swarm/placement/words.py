"""The planner's sentences. Page, log, lease and test show the same words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swarm.wire.spans import in_words, runs


def without_server(blocks: Iterable[int]) -> str:
    spans = runs(blocks)
    return f"{in_words(spans)} {has(blocks)} no server"


def loading(blocks: Iterable[int]) -> str:
    spans = runs(blocks)
    return f"{in_words(spans)} {has(blocks)} no server online yet, but one on its way"


def nothing_known(blocks: Iterable[int]) -> str:
    """Of blocks whose keys nobody answered for and that nobody is known to serve: they may well have servers."""
    return f"{in_words(runs(blocks))} could not be read"


def thin(blocks: Iterable[int], count: int) -> str:
    servers = "only one server" if count == 1 else f"{count} servers, the fewest of all"
    return f"{in_words(runs(blocks))} {has(blocks)} {servers}"


def few(blocks: Sequence[int], held: Sequence[int], count: int) -> str:
    """Of blocks that lean on `count` operators or networks, the fewest of all; `held` are their servers."""
    bare = [block for block, servers in zip(blocks, held, strict=True) if servers == count]
    if bare:
        return thin(bare, count)
    networks = "one network or operator" if count == 1 else f"{count} networks or operators, the fewest of all"
    return f"{in_words(runs(blocks))} {has(blocks)} servers of only {networks}"


def weak(blocks: Iterable[int], share: float) -> str:
    """`share` of the throughput that each block would have if the servers were spread perfectly."""
    return f"{in_words(runs(blocks))} {has(blocks)} {share:.0%} of the throughput that these servers could give every block"


def has(blocks: Iterable[int]) -> str:
    spans = runs(blocks)
    return "has" if len(spans) == 1 and len(spans[0]) == 1 else "have"
