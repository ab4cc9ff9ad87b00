"""Several models in one swarm: which of them an arriving server helps most. Knows demand and gain, not what a model is for.

A server chooses its model when it arrives; to move one to another model costs a download, and is not planned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swarm.placement.arrivals import choose_span
from swarm.placement.decisions import Circumstances, Placement, Promise
from swarm.placement.holders import find_holes
from swarm.snapshot import Model

HOLE_GAIN = 1.0
"""A model that does not run gains all of its ideal bottleneck when it does; shared among the reloads that are still missing."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One model, how much it is asked for relative to others, and how many blocks of it would fit the arriving server."""

    model: Model
    weight: float
    num_blocks: int
    promises: tuple[Promise, ...] = ()
    known: Circumstances | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    prefix: str
    placement: Placement
    worth: float


def choose_model(demands: Iterable[Demand], rates: Mapping[str, float] | None = None) -> tuple[Choice, ...]:
    """All models with their best placement, the one to serve first: demand times marginal gain, ties by name.

    `rates` is what the server would give for each prefix, where that is known.
    """
    believed = rates or {}
    choices = [_choice(demand, believed.get(demand.model.prefix)) for demand in demands if demand.num_blocks > 0]
    return tuple(sorted(choices, key=lambda choice: (-choice.worth, choice.prefix)))


def _choice(demand: Demand, rate: float | None) -> Choice:
    placement = choose_span(demand.model, demand.num_blocks, demand.promises, known=demand.known, rate=rate)
    if placement.gain is not None:
        return Choice(demand.model.prefix, placement, demand.weight * placement.gain)
    holes = {block for hole in find_holes(demand.model, demand.promises) for block in hole}
    missing = len(holes) or 1
    filled = sum(block in holes for block in placement.span)
    return Choice(demand.model.prefix, placement, demand.weight * HOLE_GAIN * filled / missing)
