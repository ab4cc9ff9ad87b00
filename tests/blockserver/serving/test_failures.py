"""Blocks that could not be served are left alone for an hour, and then tried again."""

from __future__ import annotations

import asyncio

import pytest

from blockserver.serving.failures import NOT_AGAIN_WITHIN_S, Failures
from swarm.wire.spans import Span

BLOCKS = Span(3, 5)


def test_what_failed_is_not_tried_again_within_the_hour() -> None:
    seconds = 0.0
    failures = Failures(lambda: seconds)
    with failures.noted("m", Span(0, 2)):
        pass
    with pytest.raises(MemoryError), failures.noted("m", BLOCKS):
        raise MemoryError
    assert failures.recent("m", BLOCKS)
    assert (
        not failures.recent("m", Span(0, 2)) and not failures.recent("other", BLOCKS) and not failures.recent("m", Span(3, 4))
    )
    seconds = NOT_AGAIN_WITHIN_S - 1.0
    assert failures.recent("m", BLOCKS)
    seconds = NOT_AGAIN_WITHIN_S
    assert not failures.recent("m", BLOCKS)


def test_being_stopped_is_no_failure() -> None:
    failures = Failures()
    with pytest.raises(asyncio.CancelledError), failures.noted("m", BLOCKS):
        raise asyncio.CancelledError
    assert not failures.recent("m", BLOCKS)
