"""How far a server's clock runs from ours, as its records' expiries show it.

A server announces on a period and lets a record live twice as long (at least 60 s), by its own clock. Two renewals seen one
after the other tell its period, and so when, by its clock, it made the second; we know between which two crawls that was.
"""

from __future__ import annotations

from dataclasses import replace

from swarm.snapshot import MAX_RECORD_LIFE_S, Server, Snapshot

CLOCKS_AGREE_S = 5.0
"""Announcing takes a moment, and so does reading."""
PERIODS_S = (10.0, 450.0)
"""Update periods in use. Two expiries further apart are not two renewals in a row."""
MIN_LIFE_S = 60.0


def with_skew(snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
    """The snapshot with each server's `skew_s` as it shows now; where it does not, as it was last seen."""
    if previous is None:
        return snapshot
    before = {(model.prefix, server.peer_id): server for model in previous.models for server in model.servers}
    models = tuple(
        replace(
            model,
            servers=tuple(
                replace(server, skew_s=_skew_of(server, before.get((model.prefix, server.peer_id)), previous.at, snapshot.at))
                for server in model.servers
            ),
        )
        for model in snapshot.models
    )
    return replace(snapshot, models=models)


def estimate(earlier_expiry: float, earlier_at: float, expiry: float, at: float) -> float | None:
    """Seconds by which the writer's clock is ahead (negative: behind), 0 where it may be right; None where nothing can be said.

    The record that expires at `expiry` was written after `earlier_at` and before `at`, by our clock.
    """
    period = expiry - earlier_expiry
    if not PERIODS_S[0] <= period <= PERIODS_S[1] or not earlier_at < at <= earlier_at + period + CLOCKS_AGREE_S:
        return None
    written = expiry - max(2 * period, MIN_LIFE_S)
    ahead_at_least, ahead_at_most = written - at, written - earlier_at
    if ahead_at_least > CLOCKS_AGREE_S:
        return ahead_at_least
    return ahead_at_most if ahead_at_most < -CLOCKS_AGREE_S else 0.0


def _skew_of(server: Server, before: Server | None, earlier_at: float, at: float) -> float | None:
    if before is None:
        return None
    # Whoever changes announces out of turn, and then the time between two renewals is no period.
    if before.record.state is not server.record.state or before.record.span != server.record.span:
        return before.skew_s
    # A capped expiry is our own doing.
    if server.expires_at >= at + MAX_RECORD_LIFE_S or before.expires_at >= earlier_at + MAX_RECORD_LIFE_S:
        return before.skew_s
    seen = estimate(before.expires_at, earlier_at, server.expires_at, at)
    return before.skew_s if seen is None else seen
