"""When a server asks the coordinator again. Pure; seconds."""

from __future__ import annotations

from swarm.wire.hints import USUAL_RETRY_S

LEAST_S = 1.0
MOST_S = 600.0
"""A coordinator may slow servers down, and not silence them."""


def next_question_after(interval_s: float, retry_after_s: float | None) -> float:
    """`interval_s` is the operator's. The coordinator's word goes before it where that is sooner, or later than it says as a
    rule; `retry_after_s` None is no word."""
    if retry_after_s is None or interval_s < retry_after_s <= USUAL_RETRY_S:
        return interval_s
    return max(min(interval_s, LEAST_S), min(retry_after_s, MOST_S))
