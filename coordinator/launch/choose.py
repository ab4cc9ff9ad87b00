"""Whose loss shows the swarm healing? Pure: spans in, a server and the reason out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swarm.errors import LocalError
from swarm.wire.spans import Span, in_words, runs


@dataclass(frozen=True, slots=True)
class Choice:
    peer_id: str
    reason: str


def choose(held: Mapping[str, Span], candidates: Iterable[str]) -> Choice:
    """The first candidate whose loss opens a gap that another server can fill without opening a new one.

    `held` is who serves what now, `candidates` whom we may end, in the order in which to look. Without such a server,
    one that opens a gap; without that, the first one.
    """
    allowed = [peer_id for peer_id in candidates if peer_id in held]
    if not allowed:
        raise LocalError("No server of the demo is online, so there is none to kill.")
    gaps = {peer_id: _gap(held, peer_id) for peer_id in allowed}
    for peer_id in allowed:
        helper = _helper(held, peer_id, gaps[peer_id])
        if helper is not None:
            return Choice(peer_id, f"{_without(gaps[peer_id])}, and {_tail(helper)} can move there")
    for peer_id in allowed:
        if gaps[peer_id]:
            return Choice(peer_id, f"{_without(gaps[peer_id])}, and no other server is free to move there")
    return Choice(allowed[0], "every block has another server, so no gap will open")


def _gap(held: Mapping[str, Span], lost: str) -> tuple[Span, ...]:
    """Blocks that only `lost` holds."""
    others = _blocks(span for peer_id, span in held.items() if peer_id != lost)
    return runs(block for block in held[lost] if block not in others)


def _helper(held: Mapping[str, Span], lost: str, gap: tuple[Span, ...]) -> str | None:
    """A server that is as long as the gap and all of whose blocks somebody else holds too, `lost` not counted."""
    left = {peer_id: span for peer_id, span in held.items() if peer_id != lost}
    if not gap:
        return None
    needed = gap[-1].end - gap[0].start
    return next((p for p, span in left.items() if len(span) >= needed and not _gap(left, p)), None)


def _blocks(spans: Iterable[Span]) -> set[int]:
    return {block for span in spans for block in span}


def _without(gap: tuple[Span, ...]) -> str:
    return f"without it {in_words(gap)} {'has' if sum(map(len, gap)) == 1 else 'have'} no server"


def _tail(peer_id: str) -> str:
    return f"…{peer_id[-6:]}"
