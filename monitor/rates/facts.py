"""What clients and canaries told, as pages and JSON show it. Values only; times in Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from swarm.answers.prints import Print

CANARY_COUNTS_S = 1_800.0
"""Canaries run every five minutes; of one that has missed six of those nobody can say how it would end."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What one probe brought: tokens per second as servers announce them, or why there is no figure. `cache_tokens` is the free
    cache that the server told just before. `wrong` says what is wrong with an answer by itself, the prints are of those that
    are not."""

    tokens_per_s: float | None
    why: str = ""
    cache_tokens: int | None = None
    wrong: str = ""
    block: Print | None = None
    whole: Print | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What clients say of one server, added up. `witnesses` are addresses, not requests."""

    witnesses: int
    requests: int
    failures: int


@dataclass(frozen=True, slots=True)
class CanaryFacts:
    """The newest generation through a model by somebody whom the operator trusts. `outcome` is expected, unexpected or failed;
    `trusted_by` says whether the expected answer was configured, or is that of most runs."""

    outcome: str
    at: float
    peers: tuple[str, ...]
    trusted_by: str
    detail: str = ""
    seconds: float | None = None
