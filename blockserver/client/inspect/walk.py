"""Hidden states from boundary to boundary: where to stop, what to note, what to change.

Boundary b is what goes into block b; the last one is what comes out of the last block. Between two boundaries that matter the
blocks are passed in one go, by whatever is given for that. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from swarm.errors import LocalError
from swarm.wire.spans import Span

Edit = Callable[[torch.Tensor], torch.Tensor | None]
"""Hidden states `[batch, tokens, hidden]` -> what is to go on in their place; None where they were changed as they are, or
only looked at."""

Through = Callable[[Span, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Stops:
    """`edits` by boundary; `watch` are the boundaries to note, after their edits."""

    edits: Mapping[int, Edit] = field(default_factory=dict)
    watch: frozenset[int] = frozenset()

    def check(self, span: Span) -> None:
        """LocalError where a boundary is not within `span`."""
        strange = sorted(boundary for boundary in {*self.edits, *self.watch} if not span.start <= boundary <= span.end)
        if strange:
            raise LocalError(f"boundary {strange[0]} is not within {span.start} to {span.end}")


NOWHERE = Stops()


def everywhere(span: Span, edits: Mapping[int, Edit] | None = None) -> Stops:
    return Stops(edits or {}, frozenset(range(span.start, span.end + 1)))


def segments(span: Span, boundaries: Collection[int]) -> tuple[Span, ...]:
    """The span cut at those boundaries that lie inside it."""
    cuts = sorted({span.start, span.end, *(boundary for boundary in boundaries if span.start < boundary < span.end)})
    return tuple(Span(start, end) for start, end in pairwise(cuts))


def cut(span: Span, stops: Stops) -> tuple[Span, ...]:
    return segments(span, {*stops.edits, *stops.watch})


def walk(
    hidden: torch.Tensor, parts: Sequence[Span], through: Through, stops: Stops
) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """What comes out of the last part, and what was noted. LocalError where an edit changes the shape."""
    seen: dict[int, torch.Tensor] = {}
    hidden = _stop(hidden, parts[0].start, stops, seen)
    for part in parts:
        hidden = _stop(through(part, hidden), part.end, stops, seen)
    return hidden, seen


def _stop(hidden: torch.Tensor, boundary: int, stops: Stops, seen: dict[int, torch.Tensor]) -> torch.Tensor:
    edit = stops.edits.get(boundary)
    if edit is not None:
        edited = edit(hidden)
        if edited is not None:
            if edited.shape != hidden.shape:
                raise LocalError(f"the edit at boundary {boundary} gave {list(edited.shape)} in place of {list(hidden.shape)}")
            hidden = edited
    if boundary in stops.watch:
        seen[boundary] = hidden
    return hidden
