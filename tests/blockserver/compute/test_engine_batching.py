"""Steps of several sessions in one pass are the same steps one by one, for every family and whatever comes and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from transformers import PreTrainedModel

from blockserver.compute import worker
from blockserver.compute.batching import MaskStyle, Together, find_together
from blockserver.compute.engine import Engine
from blockserver.model.blocks import SpanModule, load_span
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.wire.spans import Span
from tests.blockserver.engines import Alone, all_at_once, prefilled
from tests.tiny_models import FAMILIES, save_tiny_model

SPAN = Span(0, 6)
SAME = {"atol": 1e-4, "rtol": 1e-4}
ONE_PASS = frozenset(
    ("gemma", "gemma2", "gemma3_text", "llama", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "qwen3_moe")
)
"""Families that must not fall back to one session after another."""


def noise(rows: int, tokens: int) -> torch.Tensor:
    return torch.randn(rows, tokens, 32)


@pytest.fixture(autouse=True)
def same_noise() -> None:
    torch.manual_seed(0)


@pytest_asyncio.fixture
async def engine(tiny: tuple[Path, PreTrainedModel]) -> AsyncIterator[Engine]:
    one = Engine(load_span(tiny[0], SPAN, torch.float32), 10_000)
    yield one
    one.stop()


@pytest.mark.parametrize("family", sorted(FAMILIES))
async def test_sessions_of_unequal_lengths_share_a_pass_in_every_family(family: str, tmp_path: Path) -> None:
    """Windows are of four tokens, so most rows have left theirs; one session has two rows. A family that cannot share a
    pass gives the same one by one."""
    save_tiny_model(tmp_path / "model", family)
    engine = Engine(load_span(tmp_path / "model", SPAN, torch.float32), 10_000)
    shares = find_together(engine.module) is not None
    assert shares or family not in ONE_PASS
    prompts = [noise(1, 3), noise(1, 80), noise(2, 7), noise(1, 5)]
    sessions = [await prefilled(engine, prompt) for prompt in prompts]
    alone = [Alone(engine.module) for _ in prompts]
    for one, prompt in zip(alone, prompts, strict=True):
        one.step(prompt)
    for _ in range(6):
        tokens = [noise(prompt.shape[0], 1) for prompt in prompts]
        passes = engine.spent.passes
        outputs = await all_at_once(
            engine, [engine.step(session, BlockInput(token)) for session, token in zip(sessions, tokens, strict=True)]
        )
        assert engine.spent.passes - passes == (2 if shares else 5), "the held pass, and one for all"
        for output, one, token in zip(outputs, alone, tokens, strict=True):
            torch.testing.assert_close(output, one.step(token), **SAME)
    assert engine.spent.steps_together == (24 if shares else 0)
    for session in sessions:
        engine.close(session)
    engine.stop()


async def test_rows_that_come_and_go_and_change_places_stay_themselves(engine: Engine) -> None:
    """Random halves of the sessions step together; some end, some begin, some go back, some prefill again."""
    source = torch.Generator().manual_seed(1)
    pairs = [(await prefilled(engine, prompt := noise(1 + n % 2, 2 + n)), Alone(engine.module), prompt) for n in range(7)]
    for _, one, prompt in pairs:
        one.step(prompt)
    running = [(session, one) for session, one, _ in pairs]
    for turn in range(25):
        chosen = [pair for pair in running if torch.rand(1, generator=source) < 0.6]
        tokens = [noise(session.batch, 1) for session, _ in chosen]
        position = [session.position - 1 if torch.rand(1, generator=source) < 0.2 else None for session, _ in chosen]
        outputs = await all_at_once(
            engine,
            [
                engine.step(session, BlockInput(token), back)
                for (session, _), token, back in zip(chosen, tokens, position, strict=True)
            ],
        )
        for output, (_, one), token, back in zip(outputs, chosen, tokens, position, strict=True):
            if back is not None:
                one.cache.rollback(back)
            torch.testing.assert_close(output, one.step(token), **SAME)
        if turn % 5 == 4:
            engine.close(running.pop(turn % len(running))[0])
            longer = running[0]
            more = noise(longer[0].batch, 40)
            torch.testing.assert_close(await engine.step(longer[0], BlockInput(more)), longer[1].step(more), **SAME)
            prompt = noise(1, 9)
            running.append((await prefilled(engine, prompt), Alone(engine.module)))
            running[-1][1].step(prompt)
    assert engine.spent.steps_together > 50
    for session, _ in running:
        engine.close(session)
    assert engine.cache_tokens_left == 2 * 6 * 10_000


async def test_beams_are_reordered_in_shared_rows(engine: Engine) -> None:
    one, other = await prefilled(engine, first := noise(3, 4)), await prefilled(engine, noise(1, 6))
    alone = Alone(engine.module)
    alone.step(first)
    order = torch.LongTensor([2, 0, 0])
    for rows in (None, order, order):
        token = noise(3, 1)
        if rows is not None:
            with torch.inference_mode():
                alone.cache.reorder(rows)
        outputs = await all_at_once(
            engine, [engine.step(one, BlockInput(token, rows=rows)), engine.step(other, BlockInput(noise(1, 1)))]
        )
        torch.testing.assert_close(outputs[0], alone.step(token), **SAME)
    assert engine.spent.steps_together == 6


async def test_one_sessions_nan_is_nobody_elses(engine: Engine) -> None:
    """Neither in its pass nor for the session that takes its rows afterwards."""
    prompts = [noise(1, 4), noise(1, 9), noise(1, 6)]
    sessions = [await prefilled(engine, prompt) for prompt in prompts]
    alone = [Alone(engine.module) for _ in prompts]
    for one, prompt in zip(alone, prompts, strict=True):
        one.step(prompt)
    tokens = [noise(1, 1), torch.full((1, 1, 32), torch.nan), noise(1, 1)]
    outputs = await all_at_once(
        engine, [engine.step(session, BlockInput(token)) for session, token in zip(sessions, tokens, strict=True)]
    )
    assert isinstance(outputs[1], RemoteError)
    assert "not finite" in str(outputs[1])
    for n in (0, 2):
        torch.testing.assert_close(outputs[n], alone[n].step(tokens[n]), **SAME)
    engine.close(sessions[1])
    sessions[1] = await prefilled(engine, prompt := noise(1, 3))
    alone[1] = Alone(engine.module)
    alone[1].step(prompt)
    for _ in range(3):
        tokens = [noise(1, 1) for _ in sessions]
        outputs = await all_at_once(
            engine, [engine.step(session, BlockInput(token)) for session, token in zip(sessions, tokens, strict=True)]
        )
        for output, one, token in zip(outputs, alone, tokens, strict=True):
            torch.testing.assert_close(output, one.step(token), **SAME)


async def test_a_pass_that_fails_is_tried_for_each_session_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is enough for one at a time but not for all: nobody loses a step."""

    def out_of_memory(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("too much at once")

    prompts = [noise(1, 4), noise(1, 9)]
    sessions = [await prefilled(engine, prompt) for prompt in prompts]
    alone = [Alone(engine.module) for _ in prompts]
    for one, prompt in zip(alone, prompts, strict=True):
        one.step(prompt)
    for broken in (True, False, True):
        tokens = [noise(1, 1) for _ in sessions]
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr(SpanModule, "step_rows", out_of_memory)
            outputs = await all_at_once(
                engine, [engine.step(session, BlockInput(token)) for session, token in zip(sessions, tokens, strict=True)]
            )
        for output, one, token in zip(outputs, alone, tokens, strict=True):
            torch.testing.assert_close(output, one.step(token), **SAME)
    assert engine.spent.steps_together == 2


async def test_shared_rows_never_take_more_than_the_budget_leaves(tiny: tuple[Path, PreTrainedModel]) -> None:
    """Rows have the longest one's room, which a small cache does not have: then each session keeps its own memory."""
    engine = Engine(load_span(tiny[0], SPAN, torch.float32), 120)
    prompts = [noise(1, 70), noise(1, 2), noise(1, 3)]
    sessions = [await prefilled(engine, prompt, length) for prompt, length in zip(prompts, (90, 10, 10), strict=True)]
    alone = [Alone(engine.module) for _ in prompts]
    for one, prompt in zip(alone, prompts, strict=True):
        one.step(prompt)
    for _ in range(3):
        tokens = [noise(1, 1) for _ in sessions]
        outputs = await all_at_once(
            engine, [engine.step(session, BlockInput(token)) for session, token in zip(sessions, tokens, strict=True)]
        )
        for output, one, token in zip(outputs, alone, tokens, strict=True):
            torch.testing.assert_close(output, one.step(token), **SAME)
        assert engine.memory_bytes <= engine.load().cache_bytes
    assert engine.spent.steps_together == 0
    engine.stop()


async def test_rows_that_new_reservations_need_are_given_back(tiny: tuple[Path, PreTrainedModel]) -> None:
    engine = Engine(load_span(tiny[0], SPAN, torch.float32), 200)
    sessions = [await prefilled(engine, noise(1, n), 20) for n in (4, 5)]

    async def together() -> None:
        outputs = await all_at_once(engine, [engine.step(session, BlockInput(noise(1, 1))) for session in sessions])
        assert not any(isinstance(output, BaseException) for output in outputs)
        assert engine.memory_bytes <= engine.load().cache_bytes

    await together()
    assert engine.spent.steps_together == 2
    greedy = await prefilled(engine, noise(1, 140), 150)
    await together()
    assert engine.spent.steps_together == 2, "two rows of 64 do not fit beside 150"
    engine.close(greedy)
    await together()
    assert engine.spent.steps_together == 4
    engine.stop()


async def test_a_session_that_outgrows_its_rows_moves_on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of lengths keep a long session from making the attention of short ones long."""
    monkeypatch.setattr("blockserver.compute.slots.CLASSES", (8, 64))
    prompts = [noise(1, 4), noise(1, 6), noise(1, 20)]
    sessions = [await prefilled(engine, prompt) for prompt in prompts]
    alone = [Alone(engine.module) for _ in prompts]
    for one, prompt in zip(alone, prompts, strict=True):
        one.step(prompt)
    for _ in range(6):
        tokens = [noise(1, 1) for _ in sessions]
        outputs = await all_at_once(
            engine, [engine.step(session, BlockInput(token)) for session, token in zip(sessions, tokens, strict=True)]
        )
        for output, one, token in zip(outputs, alone, tokens, strict=True):
            torch.testing.assert_close(output, one.step(token), **SAME)


async def test_sessions_over_different_parts_of_the_span_do_not_meet(engine: Engine) -> None:
    spans = [Span(0, 6), Span(2, 4), Span(2, 4)]
    sessions = [await engine.open(span, 1, 50) for span in spans]
    alone = [Alone(engine.module.part(span)) for span in spans]
    for one in alone:
        one.cache = type(one.cache)(6, 50)
    for tokens in (3, 1, 1):
        given = [noise(1, tokens) for _ in sessions]
        outputs = await all_at_once(
            engine, [engine.step(session, BlockInput(one)) for session, one in zip(sessions, given, strict=True)]
        )
        for output, one, token in zip(outputs, alone, given, strict=True):
            torch.testing.assert_close(output, one.step(token), **SAME)
    assert engine.spent.steps_together == 4, "the two over the same part"


async def test_a_family_whose_trial_fails_is_computed_one_by_one(
    tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong mask is found out; what cannot be batched is still served."""
    module = load_span(tiny[0], SPAN, torch.float32)
    right = MaskStyle.masks

    def without_the_rows(self: MaskStyle, positions: torch.Tensor, end: int, dtype: torch.dtype) -> Any:
        return right(self, torch.full_like(positions, end - 1), end, dtype)

    monkeypatch.setattr(MaskStyle, "masks", without_the_rows)
    assert find_together(module) is None
    monkeypatch.setattr(worker, "find_together", lambda _: None)
    engine = Engine(module, 1_000)
    sessions = [await prefilled(engine, noise(1, n)) for n in (2, 5)]
    outputs = await all_at_once(engine, [engine.step(session, BlockInput(noise(1, 1))) for session in sessions])
    assert all(isinstance(output, torch.Tensor) for output in outputs)
    assert engine.spent.steps_together == 0
    engine.stop()


def test_the_trial_leaves_the_module_as_it_was(tmp_path: Path) -> None:
    """It tries a short window; parts that a session asks for meanwhile must not be made with it."""
    save_tiny_model(tmp_path / "model", "gemma2")
    module = load_span(tmp_path / "model", SPAN, torch.float32)
    module.config.sliding_window = 7
    together = find_together(module)
    assert together is not None
    assert together.style == MaskStyle(by_layer_type=True, window=7)
    assert module.config.sliding_window == 7
    assert module.under(sliding_window=3).config.sliding_window == 3
    assert module.config.sliding_window == 7


def test_rotary_tables_that_follow_the_longest_row_are_known() -> None:
    """longrope has two tables, so rows on both sides of its turning point do not meet; dynamic ones change all the time."""

    class Module:
        can_step_rows = True

        def __init__(self, **config: Any) -> None:
            self.config = type("Config", (), config)()

    dynamic = Module(rope_parameters={"full_attention": {"rope_type": "dynamic"}})
    assert find_together(dynamic) is None  # type: ignore[arg-type]
    together = Together(MaskStyle(False, None), turning_point=4_096)
    assert [together.side(position) for position in (4_095, 4_096)] == [False, True]
