"""Which servers go down together: those in one network, as our own visits found it; where that is not known, those of one name.
One definition, for the planner, the pages and the staff's board.

A name is a stranger's word. Whoever takes another's is counted as one with it, and so only takes away its own weight; what was
seen of a server's network no name can change.
"""

from __future__ import annotations

from collections.abc import Iterable

from swarm.snapshot import Model, Server

_NETWORK, _NAME = "network ", "name "


def operator_of(server: Server) -> str:
    """The same for servers that go down together. To be compared, and not to be shown: it may hold the digest of a network."""
    if server.visit is not None and server.visit.network:
        return f"{_NETWORK}{server.visit.network}"
    name = server.record.public_name
    return f"{_NAME}{name}" if name else f"server {server.peer_id}"


def operators_of(model: Model) -> dict[str, str]:
    """`operator_of` by peer id."""
    return {server.peer_id: operator_of(server) for server in model.servers}


def what_is_shared(operators: Iterable[str]) -> str:
    """`in one network`, `of one operator`, or both, for several blocks whose servers are each all of one; empty for none."""
    kinds = {operator.startswith(_NETWORK) for operator in operators}
    if not kinds:
        return ""
    if kinds == {True, False}:
        return "in one network or of one operator"
    return "in one network" if True in kinds else "of one operator"
