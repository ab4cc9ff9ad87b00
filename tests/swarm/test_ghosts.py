"""Servers that left without a word: they hold blocks until their records run out, and no longer, whatever they claim."""

from __future__ import annotations

import pytest

from swarm.placement import find_holes, plan
from swarm.snapshot import (
    MAX_RECORD_LIFE_S,
    SLOW_AFTER_S,
    Entry,
    Model,
    Outcome,
    PeerState,
    Reading,
    Server,
    Snapshot,
    Visit,
    assemble,
)
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.swarms import peer_id

NOW = 1_790_000_000.0
LIFE_S = 240.0


def announced(name: str, span: Span, state: ServerState, expires_at: float = NOW + LIFE_S) -> dict[str, list[Entry]]:
    record = ServerRecord(state, 10.0, span).to_wire()
    return {f"m.{block}": [Entry(peer_id(name), record, expires_at)] for block in span}


def seen(at: float, *parts: dict[str, list[Entry]]) -> Model:
    entries: dict[str, list[Entry]] = {}
    for part in parts:
        for key, listed in part.items():
            entries.setdefault(key, []).extend(listed)
    snapshot: Snapshot = assemble("main", at, {"m": ModelRecord(28, None)}, {"m": Reading(entries)}, None)
    return snapshot.models[0]


OTHERS = (
    announced("a", Span(0, 14), ServerState.ONLINE, NOW + 9 * LIFE_S),
    announced("b", Span(0, 14), ServerState.ONLINE, NOW + 9 * LIFE_S),
)


def test_a_server_that_was_killed_while_it_loaded_holds_its_blocks_until_its_record_runs_out() -> None:
    """parallax#245: the second of two nodes never finishes loading, is killed, and 14–28 stay routed to it."""
    ghost = announced("ghost", Span(14, 28), ServerState.JOINING)
    assert not find_holes(seen(NOW + LIFE_S - 1, *OTHERS, ghost)), "it may still come"
    after = seen(NOW + LIFE_S, *OTHERS, ghost)
    assert find_holes(after) == (Span(14, 28),)
    (move,) = plan(after)
    assert move.target == Span(14, 28) and move.peer_id in {peer_id("a"), peer_id("b")}


def test_a_server_without_coordinator_waits_half_an_hour_for_others_that_say_that_they_load_blocks_of_nobody() -> None:
    """Its own view believes what is announced; anyone may announce for ten years that somebody loads."""
    ghost = announced("ghost", Span(14, 28), ServerState.JOINING, NOW + 10 * 365 * 86_400)
    before: dict[str, dict[str, Server]] = {}
    found = []
    for at in (NOW, NOW + SLOW_AFTER_S, NOW + SLOW_AFTER_S + 1):
        model = assemble("main", at, {"m": ModelRecord(28, None)}, {"m": Reading(ghost)}, None, known=before).models[0]
        before = {"m": {server.peer_id: server for server in model.servers}}
        found.append(find_holes(model))
    assert found == [(Span(0, 14),), (Span(0, 14),), (Span(0, 28),)]


def test_an_expiry_years_ahead_keeps_no_ghost() -> None:
    """What is read without a renewal is no younger for being read again: the cap counts from each reading, a visit decides."""
    ghost = announced("ghost", Span(14, 28), ServerState.ONLINE, NOW + 10 * 365 * 86_400)
    snapshot = assemble("main", NOW, {"m": ModelRecord(28, None)}, {"m": Reading(ghost)}, {})
    (server,) = snapshot.models[0].servers
    assert server.state is PeerState.NOT_CHECKED and server.expires_at == NOW + MAX_RECORD_LIFE_S
    assert find_holes(snapshot.models[0]) == (Span(0, 28),), "announced is not served"


@pytest.mark.parametrize("restarts", [1, 3])
def test_who_left_and_came_back_under_other_ids_is_one_server_to_the_planner(restarts: int) -> None:
    """parallax#166: exit and quickly rejoin, and three machines count as four. The old ids do not answer any more."""
    old = [announced(f"old {n}", Span(14, 28), ServerState.ONLINE) for n in range(restarts)]
    new = announced("new", Span(14, 28), ServerState.ONLINE)
    entries: dict[str, list[Entry]] = {}
    for part in (*OTHERS, *old, new):
        for key, listed in part.items():
            entries.setdefault(key, []).extend(listed)
    answers = {peer_id(name): Visit(peer_id(name), NOW, Outcome.ANSWERED) for name in ("a", "b", "new")}
    silent = {peer_id(f"old {n}"): Visit(peer_id(f"old {n}"), NOW, Outcome.REFUSED) for n in range(restarts)}
    snapshot = assemble("main", NOW, {"m": ModelRecord(28, None)}, {"m": Reading(entries)}, {**answers, **silent})
    online = [server.peer_id for server in snapshot.models[0].servers if server.state is PeerState.ONLINE]
    assert sorted(online) == sorted(answers)
    without_new = assemble(
        "main",
        NOW,
        {"m": ModelRecord(28, None)},
        {"m": Reading(entries)},
        {**answers, **silent, peer_id("new"): silent[peer_id("old 0")]},
    )
    assert find_holes(without_new.models[0]) == (Span(14, 28),), "the ghosts hold nothing"
