"""What the servers of a model are asked in one round, so that they can be compared: the tensors, and the block. Pure.

The secret keeps both from being foreseen. Knows who holds what and who was asked already, not what came of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swarm.answers.judging import OTHERS_NEEDED
from swarm.snapshot import Model, PeerState, Server

ROUND_S = 3600.0
"""Everyone is asked about once in a round: as often as anybody is measured."""
HIDDEN = "?"
"""Those whose network is not known count as one operator: behind relays anybody can be many."""

Place = tuple[str, int]
"""Prefix and block."""


@dataclass(frozen=True, slots=True)
class Round:
    """`asked` are the networks of those who were asked in this round already, by place."""

    number: int
    secret: bytes
    asked: Mapping[Place, frozenset[str]] = field(default_factory=dict)

    def seed(self, prefix: str) -> bytes:
        return self._digest("tensors", prefix)

    def rank(self, prefix: str, block: int) -> bytes:
        return self._digest("block", f"{prefix} {block}")

    def with_asked(self, prefix: str, block: int, network: str) -> Round:
        before = self.asked.get((prefix, block), frozenset())
        return replace(self, asked={**self.asked, (prefix, block): before | {network}})

    def _digest(self, *words: str) -> bytes:
        return hashlib.blake2b(" ".join((str(self.number), *words)).encode(), key=self.secret, digest_size=16).digest()


def number_of(now: float) -> int:
    return int(now // ROUND_S)


def network_of(server: Server) -> str:
    return (server.visit.network if server.visit is not None else "") or HIDDEN


def holders_of(model: Model) -> Mapping[int, frozenset[str]]:
    """The networks of those who serve each block now."""
    found: dict[int, set[str]] = {}
    for server in model.servers:
        if server.state is PeerState.ONLINE:
            for block in server.span:
                found.setdefault(block, set()).add(network_of(server))
    return {block: frozenset(networks) for block, networks in found.items()}


def asked_alike(prefix: str, server: Server, holders: Mapping[int, frozenset[str]], round_: Round) -> int:
    """The block of this server that most others were asked for already, then the one that most others hold; of those that are
    equally good another one each round, so that to be right on one block is not enough."""
    own = {network_of(server)}

    def worth(block: int) -> tuple[int, int, bytes]:
        asked = len(round_.asked.get((prefix, block), frozenset()) - own)
        held = len(holders.get(block, frozenset()) - own)
        # More than are needed to tell make no block better: otherwise it would always be the same one.
        return min(asked, OTHERS_NEEDED), min(held, OTHERS_NEEDED), round_.rank(prefix, block)

    return max(server.span, key=worth)
