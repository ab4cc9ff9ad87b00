"""A snapshot in the light of what servers answered: who computes nothing serves nothing, who is doubted is shown so. Pure.

Applied where everything is read and where history is made, as the staff's rulings are; what is stored of the swarm stays as it
was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monitor.rates.words import of_dispute, of_doubt
from swarm.answers.judging import Finding
from swarm.snapshot import Model, Outcome, PeerState, Server, Snapshot

Key = tuple[str, str]


def held_against(server: Server, finding: Finding | None) -> Server:
    """The server as it may be counted and shown. Only answers that are wrong by themselves take it out of what is covered: that
    others disagree with it may be the others' fault."""
    words = of_doubt(finding) if finding is not None else ""
    if finding is None or not words or server.state is PeerState.GONE:
        return server
    conflict = "; ".join(filter(None, (server.conflict, words)))
    visit = server.visit
    # Other blocks than those that it was asked for may be good ones.
    if not finding.serves_nothing or finding.blocks != server.span or server.state is not PeerState.ONLINE or visit is None:
        return replace(server, conflict=conflict)
    visit = replace(visit, outcome=Outcome.WRONG_ANSWER, detail=words)
    return replace(server, state=PeerState.UNREACHABLE, visit=visit, conflict=conflict)


def counted(model: Model, findings: Mapping[Key, Finding]) -> Model:
    """The model with its servers as they may be counted."""
    servers = (held_against(server, findings.get((model.prefix, server.peer_id))) for server in model.servers)
    return replace(model, servers=tuple(servers))


def shown(model: Model, findings: Mapping[Key, Finding]) -> Model:
    """The same with what its servers do not agree on."""
    model = counted(model, findings)
    online = [findings.get((model.prefix, server.peer_id)) for server in model.servers if server.state is PeerState.ONLINE]
    disputed = of_dispute(finding for finding in online if finding is not None)
    return replace(model, conflict="; ".join(filter(None, (model.conflict, disputed))))


def applied(snapshot: Snapshot, findings: Mapping[Key, Finding]) -> Snapshot:
    return replace(snapshot, models=tuple(counted(model, findings) for model in snapshot.models))
