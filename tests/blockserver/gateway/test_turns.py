"""Callers take turns: nobody waits behind another's crowd, and whoever leaves the queue makes room."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserver.gateway.turns import NoRoom, Ticket, Turns, in_order
from tests.blockserver.living import eventually


def ticket(caller: str, number: int) -> Ticket:
    return Ticket(caller, number, lambda before: None)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.dictionaries(st.sampled_from("abc"), st.integers(0, 4)))
def test_the_order_is_fair_complete_and_first_come_first_served_for_each(callers: list[str], running: dict[str, int]) -> None:
    waiting = [ticket(caller, number) for number, caller in enumerate(callers)]
    order = in_order(waiting, running, {})
    assert Counter(order) == Counter(waiting)
    served, left = Counter(running), Counter(callers)
    for chosen in order:
        assert served[chosen.caller] == min(served[name] for name in left if left[name])
        served[chosen.caller] += 1
        left[chosen.caller] -= 1
    for caller in "abc":
        numbers = [chosen.number for chosen in order if chosen.caller == caller]
        assert numbers == sorted(numbers)


async def test_a_crowd_of_one_caller_does_not_hold_up_another() -> None:
    turns = Turns(1, 10, 10)
    order: list[str] = []

    async def work(caller: str) -> None:
        async with turns.turn(caller):
            order.append(caller)
            await asyncio.sleep(0)

    async with turns.turn("first"):
        tasks = [asyncio.create_task(work(caller)) for caller in ("crowd", "crowd", "crowd", "other", "other")]
        await eventually(lambda: turns.waiting == 5)
    await asyncio.gather(*tasks)
    assert order == ["crowd", "other", "crowd", "other", "crowd"]
    assert not turns._last_turn
    assert (turns.running, turns.waiting) == (0, 0)


async def test_only_so_many_run_at_once() -> None:
    turns, most = Turns(3, 20, 20), 0

    async def work() -> None:
        nonlocal most
        async with turns.turn("a"):
            most = max(most, turns.running)
            await asyncio.sleep(0)

    await asyncio.gather(*(work() for _ in range(10)))
    assert most == 3


async def test_who_waits_hears_how_many_come_before() -> None:
    turns = Turns(1, 10, 10)
    heard: list[int] = []

    async def work(tell: list[int] | None = None) -> None:
        async with turns.turn("a", (tell if tell is not None else []).append):
            await asyncio.sleep(0)

    async with turns.turn("z"):
        tasks = [asyncio.create_task(work()), asyncio.create_task(work()), asyncio.create_task(work(heard))]
        await eventually(lambda: turns.waiting == 3)
        assert heard == [2]
        tasks[0].cancel()
        await eventually(lambda: turns.waiting == 2)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert heard == [2, 1, 0]


async def test_a_full_queue_refuses_and_says_whose_fault_it_is() -> None:
    turns = Turns(1, 2, 1)
    async with turns.turn("a"):
        waiting = asyncio.create_task(turns.turn("a").__aenter__())
        await eventually(lambda: turns.waiting == 1)
        with pytest.raises(NoRoom) as own:
            await turns.turn("a").__aenter__()
        other = asyncio.create_task(turns.turn("b").__aenter__())
        await eventually(lambda: turns.waiting == 2)
        with pytest.raises(NoRoom) as full:
            await turns.turn("c").__aenter__()
        assert (own.value.yours, full.value.yours, full.value.waiting) == (True, False, 2)
        for task in (waiting, other):
            task.cancel()
        await asyncio.gather(waiting, other, return_exceptions=True)
    assert (turns.running, turns.waiting) == (0, 0)


async def test_with_nobody_waiting_a_place_that_is_free_is_taken_even_without_a_queue() -> None:
    turns = Turns(1, 0, 1)
    async with turns.turn("a"):
        with pytest.raises(NoRoom):
            await turns.turn("b").__aenter__()
    async with turns.turn("b"):
        assert turns.running == 1
