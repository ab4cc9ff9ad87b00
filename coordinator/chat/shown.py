"""What the page shows of an answer, ready for its template and for its script: the same words in both. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.chat.gateway import Event, LensRow, Report, Text, Waiting
from swarm.wire.keys import looks_like_peer_id

TAIL = 6
_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}


@dataclass(frozen=True, slots=True)
class ShownHop:
    """`path` is empty where the peer id is none."""

    short: str
    path: str
    blocks: str


@dataclass(frozen=True, slots=True)
class ShownReport:
    hops: tuple[ShownHop, ...]
    figures: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    after: str
    hop: ShownHop | None
    guesses: tuple[tuple[str, str], ...]


def report(said: Report, base: str) -> ShownReport:
    """`base` is what the addresses of the swarm's pages begin with."""
    words = []
    if said.tokens_per_second is not None:
        words.append(f"{said.tokens_per_second:.1f} tok/s")
    if said.recoveries:
        words.append(f"{said.recoveries} {'server was' if said.recoveries == 1 else 'servers were'} replaced on the way")
    return ShownReport(tuple(_hop(hop.peer_id, hop.blocks, base) for hop in said.route), " · ".join(words))


def row(said: LensRow, base: str) -> ShownRow:
    after = str(said.blocks - 1) if said.blocks else "none yet"
    guesses = tuple((visible(text), percent(probability)) for text, probability in said.guesses)
    return ShownRow(after, _hop(said.peer_id, "", base) if said.peer_id else None, guesses)


def event(said: Event, base: str) -> dict[str, Any]:
    """One line of the stream to the page's script."""
    if isinstance(said, Waiting):
        return {"note": waiting(said.before)}
    if isinstance(said, Text):
        return {"text": said.text}
    shown = report(said, base)
    hops = [{"short": hop.short, "path": hop.path, "blocks": hop.blocks} for hop in shown.hops]
    return {"report": {"hops": hops, "figures": shown.figures}}


def waiting(before: int) -> str:
    return (
        "It is your turn next."
        if not before
        else f"{before} {'request comes' if before == 1 else 'requests come'} before yours."
    )


def visible(text: str) -> str:
    """A token with what cannot be seen to be seen."""
    return "".join(map(_letter, text)) or "(nothing)"


def _letter(letter: str) -> str:
    return _VISIBLE.get(letter) or (letter if letter.isprintable() else f"U+{ord(letter):04X}")


def percent(chance: float) -> str:
    return "< 1 %" if 0 < chance < 0.005 else f"{100 * chance:.0f} %"


def _hop(peer_id: str, blocks: str, base: str) -> ShownHop:
    first, _, last = blocks.partition("-")
    words = "" if not blocks else f"block {first}" if first == last else f"blocks {first}–{last}"
    path = f"{base}/p/{peer_id}" if looks_like_peer_id(peer_id) else ""
    return ShownHop(f"…{peer_id[-TAIL:]}", path, words)
