"""Spans of blocks. Everywhere in Sepal a span is half-open, as on the wire; people are shown its last block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Blocks `start` to `end - 1`. Never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a span needs 0 <= start < end, not {self.start}:{self.end}")

    def __len__(self) -> int:
        return self.end - self.start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))

    def __contains__(self, block: object) -> bool:
        return isinstance(block, int) and self.start <= block < self.end

    def __str__(self) -> str:
        return f"{self.start}:{self.end}"

    def covers(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end

    def in_words(self) -> str:
        """`block 7` or `blocks 3–6`, the last block included."""
        return f"block {self.start}" if len(self) == 1 else f"blocks {self.start}–{self.end - 1}"


def runs(blocks: Iterable[int]) -> tuple[Span, ...]:
    """The blocks as the fewest spans, in order."""
    spans: list[Span] = []
    for block in sorted(set(blocks)):
        if spans and spans[-1].end == block:
            spans[-1] = Span(spans[-1].start, block + 1)
        else:
            spans.append(Span(block, block + 1))
    return tuple(spans)


def suffixes(spans: Iterable[Span], num_blocks: int) -> tuple[Span, ...]:
    """From each block of the spans, within a model of so many blocks, to where they end: all places to begin within them."""
    within = (span for span in spans if span.start < num_blocks)
    joined = runs(block for span in within for block in range(span.start, min(span.end, num_blocks)))
    return tuple(Span(start, span.end) for span in joined for start in span)


def in_words(spans: Iterable[Span]) -> str:
    """`block 7`, `blocks 3–6`, or `blocks 3–6, 9, 12–13`."""
    listed = list(spans)
    if len(listed) == 1:
        return listed[0].in_words()
    parts = [str(span.start) if len(span) == 1 else f"{span.start}–{span.end - 1}" for span in listed]
    return "blocks " + ", ".join(parts)
