"""Ghosts: records without a server behind them. Doubles: one id or name that more than one machine seems to use. Pure.

None of it is proof. It is what is worth a look before somebody is put into quarantine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from monitor.published import Published, ago
from monitor.tables import why_state
from swarm.snapshot import PeerState

MOVES_SUSPECT = 4
"""Changes of span within an hour from which on one id is more likely two machines than one that moves: a real move loads for
minutes, and the planner's pause between two is half an hour."""


@dataclass(frozen=True, slots=True)
class Ghost:
    prefix: str
    peer_id: str
    name: str
    blocks: str
    since: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Double:
    """`kind` says of what there are several."""

    kind: str
    subject: str
    words: str
    peers: tuple[str, ...]


def ghosts(published: Published) -> tuple[Ghost, ...]:
    """Announced, and not answering; longest first."""
    found = []
    for model in published.snapshot.models:
        for server in model.servers:
            if server.state is not PeerState.UNREACHABLE:
                continue
            sighting = published.sightings.get((model.prefix, server.peer_id))
            found.append(
                Ghost(
                    prefix=model.prefix,
                    peer_id=server.peer_id,
                    name=server.record.public_name or "",
                    blocks=server.span.in_words(),
                    since=sighting.state_since if sighting else None,
                    why=why_state(server, sighting, published.read_at),
                )
            )
    return tuple(sorted(found, key=lambda ghost: (ghost.since or 0.0, ghost.peer_id)))


def doubles(published: Published, moves: Mapping[str, int]) -> tuple[Double, ...]:
    """`moves`: how often each peer id changed its blocks within the last hour."""
    return (*_conflicts(published), *_restless(moves), *_two_models(published), *_shared_names(published))


def _conflicts(published: Published) -> Iterable[Double]:
    for model in published.snapshot.models:
        for server in model.servers:
            if server.conflict:
                yield Double("record against answer", server.peer_id, server.conflict, (server.peer_id,))


def _restless(moves: Mapping[str, int]) -> Iterable[Double]:
    for peer_id, count in sorted(moves.items(), key=lambda item: (-item[1], item[0])):
        if count >= MOVES_SUSPECT:
            words = f"its blocks changed {count} times within an hour: two machines may use the same identity file"
            yield Double("one id, changing blocks", peer_id, words, (peer_id,))


def _two_models(published: Published) -> Iterable[Double]:
    models: dict[str, list[str]] = defaultdict(list)
    for model in published.snapshot.models:
        # One that says that it is leaving has changed its model in order.
        for server in (server for server in model.servers if server.state is not PeerState.LEAVING):
            models[server.peer_id].append(model.prefix)
    for peer_id, prefixes in sorted(models.items()):
        if len(prefixes) > 1:
            yield Double("one id, several models", peer_id, f"it announces {' and '.join(prefixes)}", (peer_id,))


def _shared_names(published: Published) -> Iterable[Double]:
    peers: dict[str, set[str]] = defaultdict(set)
    for model in published.snapshot.models:
        for server in model.servers:
            if server.record.public_name:
                peers[server.record.public_name].add(server.peer_id)
    for name, ids in sorted(peers.items()):
        if len(ids) > 1:
            yield Double("one name, several ids", name, f"{len(ids)} servers carry this name", tuple(sorted(ids)))


def age(since: float | None, now: float) -> str:
    return ago(max(0.0, now - since)) if since is not None else "not known"
