"""Turns: steps first, nobody for ever last, and a clear refusal when too much waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from blockserver.compute import scheduler
from blockserver.compute.engine import Busy, Engine
from blockserver.compute.passes import LARGEST_CHUNK, SMALLEST_CHUNK, Chunks
from blockserver.compute.scheduler import PATIENCE, Company, Job, JobQueue, Kind, Turns
from blockserver.compute.worker import Worker
from blockserver.model.blocks import SpanModule, load_span
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span
from tests.blockserver.engines import Alone, all_at_once, held, prefilled

SPAN = Span(0, 3)


@pytest_asyncio.fixture
async def engine(tiny: tuple[Path, PreTrainedModel]) -> AsyncIterator[Engine]:
    one = Engine(load_span(tiny[0], SPAN, torch.float32), 10_000)
    yield one
    one.stop()


def test_the_first_in_priority_goes_first() -> None:
    turns = Turns()
    assert turns.choose([Kind.BACKWARD, Kind.STEP, Kind.FORWARD]) is Kind.STEP
    assert turns.choose([Kind.BACKWARD, Kind.FORWARD]) is Kind.FORWARD


def test_steps_keep_four_of_five_turns_while_others_wait() -> None:
    turns = Turns()
    chosen = [turns.choose([Kind.STEP, Kind.PREFILL]) for _ in range(50)]
    assert chosen.count(Kind.STEP) == 50 * PATIENCE // (PATIENCE + 1)


@given(st.lists(st.sets(st.sampled_from(Kind), min_size=1), max_size=100))
def test_nobody_waits_for_ever(rounds: list[set[Kind]]) -> None:
    """Whatever else waits, a kind that waits all the time has a turn within a bounded number of them."""
    turns, since = Turns(), dict.fromkeys(Kind, 0)
    for waiting in rounds:
        chosen = turns.choose(waiting)
        assert chosen in waiting
        for kind in Kind:
            since[kind] = 0 if kind is chosen or kind not in waiting else since[kind] + 1
            assert since[kind] <= PATIENCE + len(Kind)


class _Work:
    def advance(self) -> list[object] | None:
        return [None]


def job(kind: Kind, tokens: int = 1) -> Job:
    loop = asyncio.get_running_loop()
    return Job(kind, tokens, _Work(), loop.create_future(), loop)


async def test_a_full_queue_says_when_to_come_back() -> None:
    queue = JobQueue(lambda: 100.0)
    for _ in range(scheduler.MOST_WAITING):
        queue.put(job(Kind.FORWARD, tokens=10))
    with pytest.raises(Busy, match=r"busy: 64 forward passes wait already \(640 tokens\); try again in 6 s"):
        queue.put(job(Kind.FORWARD))
    queue.put(job(Kind.STEP))
    assert queue.waiting() == {Kind.STEP: 1, Kind.PREFILL: 0, Kind.FORWARD: 64, Kind.BACKWARD: 0}


async def test_few_requests_with_many_tokens_are_a_full_queue_too() -> None:
    """Their tensors wait in memory. A single one of any size is always taken."""
    queue = JobQueue(lambda: 0.0)
    queue.put(job(Kind.BACKWARD, tokens=scheduler.MOST_TOKENS_WAITING * 2))
    with pytest.raises(Busy, match="try again in"):
        queue.put(job(Kind.FORWARD, tokens=1))
    queue.put(job(Kind.STEP))


async def test_steps_with_the_same_key_are_taken_together_and_the_rest_keep_their_order() -> None:
    queue = JobQueue(lambda: 0.0)
    jobs = [job(Kind.STEP, tokens=tokens) for tokens in (1, 2, 1, 4, 3, 1)]
    for one in jobs:
        queue.put(one)
    odd = [jobs[0], jobs[2], jobs[4]]
    assert queue.take_alike(1, lambda one: one.tokens % 2, most=5) == odd, "the last one token does not fit any more"
    assert [queue.take(), queue.take(), queue.take()] == [jobs[1], jobs[3], jobs[5]]


def test_waiting_for_company_is_given_up_where_nobody_comes_and_tried_again() -> None:
    company = Company()
    company.took(0.1)
    assert company.wait_s(0) == 0.0
    assert company.wait_s(3) == pytest.approx(0.03)
    for _ in range(20):
        company.came(0, 3)
    assert [company.wait_s(3) > 0 for _ in range(64)].count(True) == 2
    for _ in range(3):
        company.came(3, 3)
    assert company.wait_s(3) > 0


def test_company_is_not_waited_for_longer_than_a_moment() -> None:
    company = Company()
    company.took(60.0)
    assert company.wait_s(1) == scheduler.LONGEST_WAIT_S


@given(st.floats(min_value=0.0, max_value=1e9), st.integers(min_value=1, max_value=5_000), st.booleans())
def test_a_chunk_is_a_power_of_two_within_limits(rate: float, rows: int, crowded: bool) -> None:
    size = Chunks(rate, lambda: crowded).size(rows)
    assert size & (size - 1) == 0
    assert 1 <= size <= LARGEST_CHUNK
    assert size * rows <= max(LARGEST_CHUNK, rows)
    assert size * rows >= SMALLEST_CHUNK // 2 or size == 1 or rows > SMALLEST_CHUNK // 2


async def test_steps_of_others_are_done_between_the_chunks_of_a_prefill(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is recorded on the compute thread itself: a long prompt is in five chunks, a step comes after the first."""
    walker = await prefilled(engine, torch.randn(1, 3, 32))
    late = await engine.open(SPAN, 1, 200)
    prompt = torch.randn(1, 160, 32)
    order: list[int] = []
    step: asyncio.Future[torch.Tensor] | None = None
    loop, asked = asyncio.get_running_loop(), threading.Event()
    forward = SpanModule.forward

    def ask() -> None:
        nonlocal step
        step = asyncio.ensure_future(engine.step(walker, BlockInput(torch.randn(1, 1, 32))))
        loop.call_soon(loop.call_soon, asked.set)

    def recorded(self: SpanModule, hidden: torch.Tensor, *rest: object) -> torch.Tensor:
        order.append(hidden.shape[1])
        if len(order) == 1:
            loop.call_soon_threadsafe(ask)
            asked.wait(60)
        return forward(self, hidden, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Chunks, "size", lambda _, rows: 32)
    with monkeypatch.context() as patch:
        patch.setattr(SpanModule, "forward", recorded)
        output = await engine.step(late, BlockInput(prompt))
    assert step is not None
    await step
    assert order == [32, 1, 32, 32, 32, 32]
    torch.testing.assert_close(output, Alone(engine.module).step(prompt), atol=1e-5, rtol=1e-5)


async def test_two_prefills_take_turns(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prompt does not keep a short one waiting to its end."""
    monkeypatch.setattr(Chunks, "size", lambda _, rows: 32)
    ended: list[int] = []

    async def prefill(length: int) -> None:
        await prefilled(engine, torch.randn(1, length, 32))
        ended.append(length)

    await all_at_once(engine, [prefill(200), prefill(40)])
    assert ended == [40, 200]


async def test_long_forwards_go_in_chunks_and_give_the_same(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, prompts = torch.randn(2, 70, 32), torch.randn(3, 2, 20, 32)
    whole = await engine.forward(SPAN, BlockInput(hidden, prompts))
    monkeypatch.setattr(Chunks, "size", lambda _, rows: 16)
    passes = engine.spent.passes
    torch.testing.assert_close(await engine.forward(SPAN, BlockInput(hidden, prompts)), whole, atol=1e-5, rtol=1e-5)
    assert engine.spent.passes == passes + 5


async def test_a_prefill_that_fails_in_a_later_chunk_leaves_the_session_as_it_was(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chunks, "size", lambda _, rows: 16)
    session = await prefilled(engine, first := torch.randn(1, 5, 32))
    broken = torch.randn(1, 40, 32)
    broken[:, 35] = torch.nan
    with pytest.raises(RemoteError, match="not finite"):
        await engine.step(session, BlockInput(broken))
    assert session.position == 5
    alone = Alone(engine.module)
    alone.step(first)
    token = torch.randn(1, 1, 32)
    torch.testing.assert_close(await engine.step(session, BlockInput(token)), alone.step(token), atol=1e-5, rtol=1e-5)


async def test_a_fault_of_the_thread_itself_is_answered_and_the_thread_lives(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [await prefilled(engine, torch.randn(1, 3, 32)) for _ in range(2)]

    def broken(*_: object) -> bool:
        raise AssertionError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_prepare", broken)
        outputs = await all_at_once(engine, [engine.step(one, BlockInput(torch.randn(1, 1, 32))) for one in sessions])
    assert [type(output) for output in outputs] == [RemoteError] * 2
    assert (await engine.step(sessions[0], BlockInput(torch.randn(1, 1, 32)))).shape == (1, 1, 32)


async def test_work_whose_client_is_gone_is_not_done(engine: Engine) -> None:
    passes = engine.spent.passes
    async with held(engine):
        gone = [asyncio.ensure_future(engine.forward(SPAN, BlockInput(torch.randn(1, 4, 32)))) for _ in range(3)]
        await asyncio.sleep(0)
        for one in gone:
            one.cancel()
    await engine.run(lambda _: None)
    assert engine.spent.passes == passes + 2, "the held one and the last"
