"""What a server's answer and record say together: its state in a word, version, cache; and what a client would find.

Pure. The answer beats the record.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarm.routing import Candidate, missing
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.spans import Span

FULL = "full"
"""The word for a server that serves its blocks and has no cache left for another token: clients cannot open a session there."""


def version_of(server: Server) -> str | None:
    return (server.visit.version if server.visit else None) or server.record.version


def cache_left_of(server: Server) -> int | None:
    """Cache left in tokens, keys and values of all blocks of the span together."""
    asked = server.visit.cache_tokens_left if server.visit else None
    return server.record.cache_tokens_left if asked is None else asked


def cache_tokens_of(server: Server) -> int | None:
    """How long a session its cache has room for, in tokens: keys and values of each block of the span take room."""
    cache = cache_left_of(server)
    return None if cache is None else cache // (2 * len(server.span))


def is_full(server: Server) -> bool:
    return server.state is PeerState.ONLINE and cache_tokens_of(server) == 0


QUARANTINED = "quarantined"
"""The word for a server that the site's staff has set aside: it is not counted, whatever it says."""


def shown_state(server: Server) -> str:
    if server.quarantined and server.state is not PeerState.GONE:
        return QUARANTINED
    return FULL if is_full(server) else server.state.value


@dataclass(frozen=True, slots=True)
class ClientRoute:
    """Whether a client would get through: the fewest servers that it could pass, or why it would not. `unknown` where some of
    what it would need could not be read."""

    exists: bool
    peers: tuple[str, ...] = ()
    words: str = ""
    unknown: bool = False


def client_route(model: Model) -> ClientRoute:
    """A chain of servers that answer and have cache left; a client may enter a span at any block and leave it at any."""
    usable = sorted(
        (s for s in model.servers if s.state is PeerState.ONLINE and not is_full(s)), key=lambda s: (s.span.start, s.peer_id)
    )
    peers: list[str] = []
    block, position = 0, 0
    best: Server | None = None
    while block < model.num_blocks:
        while position < len(usable) and usable[position].span.start <= block:
            if best is None or usable[position].span.end > best.span.end:
                best = usable[position]
            position += 1
        if best is None or best.span.end <= block:
            return _no_route(model, usable)
        peers.append(best.peer_id)
        block = best.span.end
    if model.at_least:
        return ClientRoute(
            False, tuple(peers), f"through the {model.num_blocks} blocks that were seen; there may be more", True
        )
    return ClientRoute(True, tuple(peers), f"through {len(peers)} {'server' if len(peers) == 1 else 'servers'}")


def _no_route(model: Model, usable: list[Server]) -> ClientRoute:
    lacking = missing((Candidate(s.peer_id, s.span) for s in usable), Span(0, model.num_blocks))
    unread = all(block in model.unread_blocks for block in lacking.blocks)
    return ClientRoute(False, (), str(lacking).replace("no server", "no server with room for another session"), unread)
