"""The cache's budget is never overdrawn, never leaks, and is given out in order."""

from __future__ import annotations

import asyncio

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockserver.compute.admission import CacheBudget, CacheFull
from blockserver.compute.cache import SessionCache
from swarm.errors import RemoteError


async def test_what_a_session_takes_is_missing_until_it_is_released() -> None:
    budget = CacheBudget(100)
    first = await budget.reserve(60)
    assert budget.left == 40
    first.release()
    first.release()
    assert budget.left == 100


async def test_a_full_cache_refuses_at_once_by_default() -> None:
    budget = CacheBudget(100)
    await budget.reserve(60)
    with pytest.raises(CacheFull, match="50 tokens x blocks are needed, 40 of 100 are free"):
        await budget.reserve(50)
    assert budget.left == 40


async def test_more_than_the_whole_cache_is_refused_without_waiting() -> None:
    with pytest.raises(CacheFull, match="this server has 100 in all"):
        await CacheBudget(100).reserve(101, timeout_s=3600)


async def test_a_session_that_waits_gets_its_turn_when_another_ends() -> None:
    budget = CacheBudget(100)
    first = await budget.reserve(60)
    waiting = asyncio.ensure_future(budget.reserve(50, timeout_s=3600))
    await asyncio.sleep(0)
    first.release()
    assert (await waiting).amount == 50
    assert budget.left == 50


async def test_a_small_session_does_not_overtake_a_large_one_that_waits() -> None:
    budget = CacheBudget(100)
    first = await budget.reserve(60)
    large = asyncio.ensure_future(budget.reserve(80, timeout_s=3600))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(budget.reserve(10, timeout_s=3600))
    await asyncio.sleep(0)
    assert not small.done()
    first.release()
    await asyncio.gather(large, small)
    assert budget.left == 10


async def test_whoever_stops_waiting_leaves_the_queue_and_takes_nothing() -> None:
    budget = CacheBudget(100)
    first = await budget.reserve(60)
    with pytest.raises(CacheFull, match="none became free"):
        await budget.reserve(80, timeout_s=0.001)
    gone = asyncio.ensure_future(budget.reserve(80, timeout_s=3600))
    next_in_line = asyncio.ensure_future(budget.reserve(40, timeout_s=3600))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await next_in_line).amount == 40
    first.release()
    assert budget.left == 60


async def test_a_turn_that_comes_as_its_session_is_cancelled_goes_back() -> None:
    budget = CacheBudget(100)
    first = await budget.reserve(60)
    gone = asyncio.ensure_future(budget.reserve(80, timeout_s=3600))
    await asyncio.sleep(0)
    first.release()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert budget.left == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(min_value=0, max_value=60)), max_size=30))
def test_whatever_comes_and_goes_the_sum_is_right(events: list[tuple[bool, int]]) -> None:
    async def run() -> None:
        budget, held = CacheBudget(100), []
        for takes, amount in events:
            if takes:
                try:
                    held.append((await budget.reserve(amount), amount))
                except CacheFull:
                    assert amount > budget.left
            elif held:
                held.pop(amount % len(held))[0].release()
            assert budget.left == 100 - sum(amount for _, amount in held) >= 0

    asyncio.run(run())


def test_rows_of_a_sessions_cache_change_places() -> None:
    cache = SessionCache(blocks=1, max_length=4)
    keys = torch.arange(12.0).reshape(2, 1, 2, 3)
    cache.update(keys, -keys, 0)
    cache.advance(2)
    cache.reorder(torch.LongTensor([1, 1]))
    seen_keys, seen_values = cache.update(torch.zeros(2, 1, 1, 3), torch.zeros(2, 1, 1, 3), 0)
    assert torch.equal(seen_keys[:, :, :2], keys[[1, 1]])
    assert torch.equal(seen_values[:, :, :2], -keys[[1, 1]])


def test_a_session_goes_back_but_not_forward() -> None:
    cache = SessionCache(blocks=1, max_length=4)
    cache.advance(2)
    cache.rollback(1)
    assert cache.position == 1
    with pytest.raises(RemoteError, match="cannot go back to position 2"):
        cache.rollback(2)
