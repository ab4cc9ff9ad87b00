"""Which leases a server follows, and with which reason it declines the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockserver.serving.conduct import Situation, misfit, objection
from swarm.wire.hints import DeclineReason, LeaseDocument, ReasonCode, Urgency, decline_reason
from swarm.wire.spans import Span

HOLE = LeaseDocument(
    id="1", model="m", start=12, end=24, urgency=Urgency.HOLE, reason_code=ReasonCode.HOLE, reason="…", expires_in_s=90.0
)
OTHER = HOLE.model_copy(update={"urgency": Urgency.ARRIVAL})
SETTLED = Situation(serving=Span(0, 12), dwelt_s=700.0, min_dwell_s=600.0)


@pytest.mark.parametrize(
    ("lease", "now", "code"),
    [
        (HOLE, SETTLED, None),
        (OTHER, SETTLED, None),
        (HOLE, replace(SETTLED, sessions_active=3, dwelt_s=1.0), None),
        (OTHER, replace(SETTLED, sessions_active=3), DeclineReason.BUSY_SESSIONS),
        (OTHER, replace(SETTLED, dwelt_s=599.0), DeclineReason.TOO_SOON),
        (OTHER, replace(SETTLED, serving=None, dwelt_s=0.0), None),
        (HOLE, replace(SETTLED, pinned=True), DeclineReason.PINNED),
        (HOLE, replace(SETTLED, fetch_bytes=2, disk_free_bytes=1), DeclineReason.DISK),
        (HOLE, replace(SETTLED, fetch_bytes=2, disk_free_bytes=2), None),
    ],
)
def test_a_hole_is_filled_at_once_and_anything_else_waits(lease: LeaseDocument, now: Situation, code: str | None) -> None:
    said = objection(lease.urgency, now)
    assert (said.reason if said else None) == code
    assert said is None or decline_reason(str(said)) is said.reason, "the coordinator reads what the server says"


@pytest.mark.parametrize(
    ("span", "code"),
    [
        (Span(12, 24), None),
        (Span(18, 30), None),
        (Span(12, 25), DeclineReason.MEMORY),
        (Span(19, 31), DeclineReason.NO_SUCH_BLOCKS),
        (Span(0, 31), DeclineReason.NO_SUCH_BLOCKS),
    ],
)
def test_blocks_that_cannot_be_loaded_here_are_not_begun_with(span: Span, code: str | None) -> None:
    said = misfit(span, 12, 30)
    assert (said.reason if said else None) == code
    assert said is None or (decline_reason(str(said)) is said.reason and said.not_again_s > 0.0)


@pytest.mark.parametrize("now", [replace(SETTLED, sessions_active=3), replace(SETTLED, dwelt_s=1.0)])
def test_what_holds_for_other_moves_only_asks_for_no_pause_that_would_hold_for_holes(now: Situation) -> None:
    said = objection(OTHER.urgency, now)
    assert said is not None and said.not_again_s == 0.0
    pinned = objection(HOLE.urgency, replace(now, pinned=True))
    assert pinned is not None and pinned.not_again_s > 0.0
