"""Which leases a server follows, and with which reason it declines the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockserver.serving.conduct import Situation, objection
from swarm.wire.hints import LeaseDocument, ReasonCode, Urgency
from swarm.wire.spans import Span

HOLE = LeaseDocument(
    id="1", model="m", start=12, end=24, urgency=Urgency.HOLE, reason_code=ReasonCode.HOLE, reason="…", expires_in_s=90.0
)
OTHER = HOLE.model_copy(update={"urgency": Urgency.ARRIVAL})
SETTLED = Situation(serving=Span(0, 12), dwelt_s=700.0, min_dwell_s=600.0, num_blocks_max=12)


@pytest.mark.parametrize(
    ("lease", "now", "code"),
    [
        (HOLE, SETTLED, None),
        (OTHER, SETTLED, None),
        (HOLE, replace(SETTLED, sessions_active=3, dwelt_s=1.0), None),
        (OTHER, replace(SETTLED, sessions_active=3), "busy_sessions"),
        (OTHER, replace(SETTLED, dwelt_s=599.0), "too_soon"),
        (OTHER, replace(SETTLED, serving=None, dwelt_s=0.0), None),
        (HOLE, replace(SETTLED, pinned=True), "pinned"),
        (HOLE, replace(SETTLED, num_blocks_max=11), "memory"),
        (HOLE, replace(SETTLED, fetch_bytes=2, disk_free_bytes=1), "disk"),
        (HOLE, replace(SETTLED, fetch_bytes=2, disk_free_bytes=2), None),
    ],
)
def test_a_hole_is_filled_at_once_and_anything_else_waits(lease: LeaseDocument, now: Situation, code: str | None) -> None:
    said = objection(lease, now)
    assert (said.split(":")[0] if said else None) == code
