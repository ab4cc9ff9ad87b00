"""How many blocks a model has: what the index of models says, what servers prove by answering, what stood before.

Pure. Nothing in the index is signed and no server says how large its model is: a size that no entry of the index bears out is
"at least so many blocks", and a model of such a size is never said to run. A server that answers for a block proves that block,
unless it is ruled out: by the site's staff, or because its answers are wrong.

A size that only servers that are ruled out have borne out falls to what others have borne out, whether these still answer or
not: each is remembered for as long as its row is kept, until a week after it left. Who is merely away takes nothing with him.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swarm.claims import read_servers
from swarm.snapshot import Model, PeerState, Reading, Server, Visit, size_from_keys


@dataclass(frozen=True, slots=True)
class Size:
    """`at_least`: it may have more. `conflict` is empty where nothing contradicts it."""

    num_blocks: int
    at_least: bool = False
    conflict: str = ""


@dataclass(frozen=True, slots=True)
class Stood:
    """What stood before. `proved`: it came from the index, or servers had answered for as many blocks; keys that nobody
    answers for anyone may write."""

    num_blocks: int
    at_least: bool = False
    proved: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one crawl brings to the question. `claims` are the sizes that the index says now, `proved` how many blocks servers
    have answered for, up to the last such block (0: nobody answered), `announced` the same of what they only announce.
    `remembered` is how many blocks servers ever answered for, `ruled_out` the same of those whose answers prove nothing."""

    claims: frozenset[int] = frozenset()
    proved: int = 0
    announced: int = 0
    remembered: int = 0
    ruled_out: int = 0


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Who proves nothing: `quarantined` of any model, `wrong` of one (prefix and peer id). `borne_out` holds by prefix and peer
    id how many blocks each server is remembered to have answered for."""

    quarantined: frozenset[str] = frozenset()
    wrong: frozenset[tuple[str, str]] = frozenset()
    borne_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def counts(self, prefix: str, peer_id: str) -> bool:
        return peer_id not in self.quarantined and (prefix, peer_id) not in self.wrong

    def most(self, prefix: str, *, counted: bool) -> int:
        """The most that any server whose word counts, or does not, is remembered to have answered for."""
        known = self.borne_out.get(prefix, {}).items()
        return max((end for peer_id, end in known if self.counts(prefix, peer_id) is counted), default=0)


EVERYBODY = Witnesses()
"""Nobody is ruled out, and nothing remembered."""


def settled(before: Stood | None, seen: Evidence) -> Size | None:
    """What is to stand now; None where nothing says anything."""
    stood = _borne_out(before, seen)
    if stood is not None and not stood.at_least and seen.proved <= stood.num_blocks and _stays(stood, seen):
        return Size(stood.num_blocks, conflict=_also(stood.num_blocks, seen))
    floor = max(seen.proved, stood.num_blocks if stood is not None and stood.at_least and stood.proved else 0)
    possible = sorted(claim for claim in seen.claims if claim >= floor)
    if len(possible) == 1:
        return Size(possible[0], conflict=_too_small(stood, possible[0], floor, seen))
    if possible:
        return Size(possible[0], True, f"the index of models says {_listed(possible)} blocks, and nobody proves which")
    size = floor or seen.announced or (before.num_blocks if before is not None else 0)
    return Size(size, True, _too_small(stood, size, floor, seen)) if size else None


def _borne_out(before: Stood | None, seen: Evidence) -> Stood | None:
    """What stood, without what only servers that are ruled out have borne out. What the index names, and nothing else, needs
    nobody to bear it out."""
    if before is None or not seen.ruled_out >= before.num_blocks > max(seen.remembered, seen.proved):
        return before
    if not before.at_least and seen.claims <= {before.num_blocks}:
        return before
    return Stood(seen.remembered, at_least=True) if seen.remembered else None


def _stays(before: Stood, seen: Evidence) -> bool:
    """The last good value stands while the index says it or says nothing, and against all it says while a server answers."""
    return not seen.claims or before.num_blocks in seen.claims or seen.proved > 0


def _also(stands: int, seen: Evidence) -> str:
    others = sorted(seen.claims - {stands})
    return f"the index of models also says {_listed(others)} blocks; {stands} stands" if others else ""


def _too_small(before: Stood | None, size: int, floor: int, seen: Evidence) -> str:
    """What stands or stood in the index, and a server's answer shows to be too small."""
    said = seen.claims | ({before.num_blocks} if before is not None and not before.at_least else set())
    smaller = sorted(claim for claim in said - {size} if claim < floor)
    if not smaller:
        return ""
    return f"the index of models says {_listed(smaller)} blocks, but a server has answered for block {floor - 1}"


def _listed(sizes: list[int]) -> str:
    return " and ".join(map(str, sizes))


def evidence(
    prefix: str,
    claims: frozenset[int],
    reading: Reading,
    num_keys: int,
    visits: Mapping[str, Visit],
    known: Mapping[str, Server],
    at: float,
    witnesses: Witnesses = EVERYBODY,
) -> Evidence:
    """`num_keys` block keys were read; `known` are the servers seen before, by peer id."""
    found, _ = read_servers(prefix, num_keys, reading, at)
    ends = [0]
    for peer_id, visit in visits.items():
        if visit.answered and witnesses.counts(prefix, peer_id):
            before = known.get(peer_id)
            span = visit.span or (found[peer_id].span if peer_id in found else before.span if before is not None else None)
            ends.append(span.end if span is not None else 0)
    return Evidence(
        claims,
        max(ends),
        size_from_keys(prefix, reading, at) or 0,
        witnesses.most(prefix, counted=True),
        witnesses.most(prefix, counted=False),
    )


def stood(model: Model | None, num_blocks: int) -> Stood:
    """What is remembered of a size; `model` is how the last snapshot had it, None where it had not."""
    if model is None:
        return Stood(num_blocks, at_least=True, proved=False)
    answered = any(server.state is PeerState.ONLINE for server in model.servers)
    return Stood(model.num_blocks, model.at_least, not model.at_least or answered)
