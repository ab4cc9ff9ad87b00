"""Whom to measure now: few at a time, in turn, nobody twice within the hour; and on which block. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from monitor.rates.questions import Round, asked_alike, holders_of, network_of
from swarm.snapshot import Model, PeerState, Server, Snapshot
from swarm.wire.spans import Span

AT_ONCE = 4
"""Servers measured in one round, one after another; a round follows each crawl."""
AGAIN_AFTER_S = 3600.0
"""A pass costs a server a fraction of a second; its speed rarely changes within the hour."""
IN_VAIN_AFTER_S = 600.0
"""So long after a pass that gave no figure it is tried again: it was busy, or just lost."""
AHEAD_S = 300.0
"""An attempt dated further ahead was made by a clock that was wrong then. Two machines' clocks may differ a little."""

PATIENCE = 3
"""Attempts that found a server busy, half an hour at least, after which it is measured all the same. Who is at work always has
pauses between two steps; who only says so would never be measured."""


@dataclass(frozen=True, slots=True)
class Past:
    """The last attempt: when, whether it gave a rate, the most free cache that was seen, and how many attempts since the last
    rate found it busy."""

    at: float
    measured: bool
    cache_tokens: int | None = None
    found_busy: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """`block` is asked for alone, with tensors from `seed`; who is asked in the same `round` for the same block is asked the
    very same. `network` and `precision` are for the comparison."""

    prefix: str
    peer_id: str
    span: Span
    idle_cache_tokens: int | None = None
    even_if_busy: bool = False
    block: int | None = None
    round: int | None = None
    seed: bytes | None = None
    network: str = ""
    precision: str = ""


def choose(
    snapshot: Snapshot, past: Mapping[tuple[str, str], Past], now: float, round_: Round | None = None
) -> tuple[Subject, ...]:
    """Those that answered the last crawl and were never measured come first, then those longest ago; of a peer that serves two
    models only one is measured in a round. With `round_` each is given the block on which it can be compared best."""
    waiting: list[tuple[float, Subject, Model, Server]] = []
    for model in snapshot.models:
        for server in model.servers:
            if server.state is not PeerState.ONLINE or server.visit is None or not server.visit.answered:
                continue
            last = past.get((model.prefix, server.peer_id))
            if last is not None and -AHEAD_S <= now - last.at < (AGAIN_AFTER_S if last.measured else IN_VAIN_AFTER_S):
                continue
            idle = last.cache_tokens if last else None
            insisting = last is not None and last.found_busy >= PATIENCE
            subject = Subject(model.prefix, server.peer_id, server.span, idle, insisting)
            waiting.append((last.at if last else 0.0, subject, model, server))
    chosen: dict[str, Subject] = {}
    for _, subject, model, server in sorted(waiting, key=lambda item: (item[0], item[1].peer_id, item[1].prefix)):
        if len(chosen) == AT_ONCE:
            break
        if subject.peer_id in chosen:
            continue
        if round_ is None:
            chosen[subject.peer_id] = subject
            continue
        block, network = asked_alike(subject.prefix, server, holders_of(model), round_), network_of(server)
        round_ = round_.with_asked(subject.prefix, block, network)
        chosen[subject.peer_id] = replace(
            subject,
            block=block,
            round=round_.number,
            seed=round_.seed(subject.prefix),
            network=network,
            precision=server.record.quant_type or "none",
        )
    return tuple(chosen.values())
