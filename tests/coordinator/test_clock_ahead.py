"""A lease, a pause and a heartbeat that bear a time that has not come yet: the clock was ahead when they were written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator import followers, lease_terms
from coordinator.lease_terms import End
from coordinator.models import Follower
from swarm.wire.spans import Span

NOW = datetime(2026, 9, 21, 14, tzinfo=UTC)
FAR = NOW + timedelta(days=100)


def test_a_lease_accepted_ahead_of_time_is_let_go() -> None:
    held = lease_terms.accepted(lease_terms.offered("p", Span(0, 4), None, NOW.timestamp()), FAR.timestamp())
    found = lease_terms.end_of(held, None, 0.0, NOW.timestamp())
    assert found is not None and found[0] is End.STALE and "clock" in found[1]


@pytest.mark.django_db
def test_nobody_is_counted_on_or_spared_until_then() -> None:
    facts = {"swarm": "main", "prefix": "tiny-hf", "num_blocks_max": 4, "not_before": FAR, "elective_not_before": FAR}
    for name, asked_at, paused_at in (("gone", FAR, FAR), ("spared", NOW, FAR), ("asked for it", NOW, NOW)):
        Follower.objects.create(**facts, peer_id=name, asked_at=asked_at, claimed_at=FAR, paused_at=paused_at, sessions=0)
    assert followers.movable("main", "tiny-hf", NOW, elective=True) == {"spared"}
    assert followers.movable("main", "tiny-hf", NOW + timedelta(minutes=5)) == frozenset()
