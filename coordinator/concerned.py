"""What was known of the servers that a hint concerns: rates reported and believed, ages, who goes down together. Pure.

Who goes down together has one number, made afresh for each hint: it tells that, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from monitor.published import ago
from swarm.placement import Circumstances
from swarm.snapshot import Model
from swarm.wire.spans import Span

MOST_CONCERNED = 24
"""A hint is kept for 90 days, and a block may have hundreds of servers."""


def concerned(model: Model, first: Iterable[str], spans: Iterable[Span], known: Circumstances) -> list[dict[str, Any]]:
    """JSON-ready: the peers `first`, then those that hold blocks of the spans. `together` is None for a server that goes
    down with no other of the model, as far as that is known."""
    near = tuple(spans)
    by_id = {server.peer_id: server for server in model.servers}
    holders = (server.peer_id for server in model.servers if any(server.span.overlaps(span) for span in near))
    peers = [peer_id for peer_id in dict.fromkeys((*first, *holders)) if peer_id in by_id][:MOST_CONCERNED]
    numbers = _numbers(model, peers, known)
    return [
        {
            "peer_id": peer_id,
            "blocks": by_id[peer_id].span.in_words(),
            "state": by_id[peer_id].state.value,
            "reported_tokens_per_second": by_id[peer_id].record.throughput,
            "believed_tokens_per_second": known.rates.get(peer_id),
            "age_s": known.ages_s.get(peer_id),
            "here_for": ago(known.ages_s[peer_id]) if peer_id in known.ages_s else "not known",
            "moved_s_ago": known.moved_s_ago.get(peer_id),
            "together": numbers.get(peer_id),
        }
        for peer_id in peers
    ]


def _numbers(model: Model, peers: Iterable[str], known: Circumstances) -> dict[str, int]:
    several = Counter(known.operators[server.peer_id] for server in model.servers if server.peer_id in known.operators)
    names: dict[str, int] = {}
    found: dict[str, int] = {}
    for peer_id in peers:
        name = known.operators.get(peer_id)
        if name is not None and several[name] > 1:
            found[peer_id] = names.setdefault(name, len(names) + 1)
    return found
