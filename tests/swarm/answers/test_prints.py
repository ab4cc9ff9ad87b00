"""What a probe asks and keeps: the same for all who are asked alike, exact in every precision, nothing of nonsense."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarm.answers.judging import distance
from swarm.answers.prints import NUMBERS, Floats, Wrong, answered, asked, print_of, question, wrong

TOKENS, WIDTH = 8, 32
SENT = asked(question(b"seed", 0, TOKENS, WIDTH), TOKENS, WIDTH)


def block(seed: int) -> Floats:
    """What a block might answer."""
    weights = np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    return SENT + np.tanh(SENT @ weights)


@given(st.binary(min_size=1, max_size=16), st.integers(0, 3))
def test_who_has_the_seed_asks_the_same_and_no_precision_rounds_it(seed: bytes, turn: int) -> None:
    buffer = question(seed, turn, TOKENS, WIDTH)
    sent = asked(buffer, TOKENS, WIDTH)
    assert buffer == question(seed, turn, TOKENS, WIDTH)
    assert buffer not in (question(seed, turn + 1, TOKENS, WIDTH), question(seed + b"x", turn, TOKENS, WIDTH))
    assert (np.abs(sent) >= 1 / 16).all() and (np.abs(sent) < 1 / 8).all() and (sent > 0).any() and (sent < 0).any()
    exact = torch.from_numpy(sent)
    assert torch.equal(exact.to(torch.bfloat16).float(), exact) and torch.equal(exact.half().float(), exact)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_answer_is_read_in_every_type_that_servers_compute_in(dtype: str) -> None:
    given = torch.from_numpy(block(1)).to(getattr(torch, dtype))
    raw = given.view(torch.int16) if dtype == "bfloat16" else given
    read = answered(raw.numpy().tobytes(), dtype, (1, TOKENS, WIDTH), TOKENS, WIDTH)
    assert not isinstance(read, Wrong) and np.array_equal(read, given.float().numpy())


def test_bfloat16_is_read_in_its_older_form_too() -> None:
    read = answered(block(1).tobytes(), "bfloat16", (1, TOKENS, WIDTH), TOKENS, WIDTH)
    assert not isinstance(read, Wrong) and np.array_equal(read, block(1))


@pytest.mark.parametrize(
    ("dtype", "size", "nbytes", "fault"),
    [
        ("float32", (1, TOKENS, WIDTH + 1), 4 * TOKENS * WIDTH, Wrong.SHAPE),
        ("float32", (TOKENS, WIDTH), 4 * TOKENS * WIDTH, Wrong.SHAPE),
        ("float32", (1, TOKENS, WIDTH), 4 * TOKENS * WIDTH - 4, Wrong.SHAPE),
        ("float16", (1, TOKENS, WIDTH), 4 * TOKENS * WIDTH, Wrong.SHAPE),
        ("float32", (1, TOKENS, WIDTH), 0, Wrong.SHAPE),
        ("int64", (1, TOKENS, WIDTH), 8 * TOKENS * WIDTH, Wrong.DTYPE),
        ("float64", (1, TOKENS, WIDTH), 8 * TOKENS * WIDTH, Wrong.DTYPE),
        ("", (1, TOKENS, WIDTH), 4 * TOKENS * WIDTH, Wrong.DTYPE),
    ],
)
def test_another_shape_type_or_length_is_wrong(dtype: str, size: tuple[int, ...], nbytes: int, fault: Wrong) -> None:
    assert answered(bytes(nbytes), dtype, size, TOKENS, WIDTH) is fault


@given(st.binary(max_size=4 * TOKENS * WIDTH), st.sampled_from(["float16", "float32", "bfloat16", "x"]))
def test_whatever_bytes_come_they_are_read_or_wrong(data: bytes, dtype: str) -> None:
    read = answered(data, dtype, (1, TOKENS, WIDTH), TOKENS, WIDTH)
    assert isinstance(read, Wrong) or (read.shape == (TOKENS, WIDTH) and isinstance(wrong(read, SENT), Wrong | None))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_is_wrong(value: float) -> None:
    answer = block(1)
    answer[3, 5] = value
    assert wrong(answer, SENT) is Wrong.NOT_FINITE


def test_zeros_and_the_input_are_wrong_by_themselves_and_a_block_s_answer_is_not() -> None:
    assert wrong(np.zeros_like(SENT), SENT) is Wrong.ZEROS
    assert wrong(SENT.copy(), SENT) is Wrong.ECHO
    assert wrong(SENT * np.float32(1.0005), SENT) is Wrong.ECHO, "and a little of it is nothing"
    assert wrong(block(1), SENT) is None


def test_prints_tell_what_was_added_and_not_what_was_sent() -> None:
    """Two answers that differ in all that was added are far apart, however much of the input they share."""
    loud = SENT * np.float32(1e4)
    one, other = loud + (block(1) - SENT), loud + (block(2) - SENT)
    right, wrong_ = print_of(b"s", [(one, loud)]), print_of(b"s", [(other, loud)])
    assert distance(right, wrong_) > 0.9
    assert distance(right, print_of(b"s", [(block(1), SENT)])) < 0.05
    assert len(right.numbers) == NUMBERS and right.norm == pytest.approx(float(np.linalg.norm(block(1) - SENT)), rel=1e-2)


@given(st.floats(0.0, 1.5), st.integers(0, 10))
def test_a_distance_of_prints_is_about_that_of_the_answers(share: float, seed: int) -> None:
    added = block(seed) - SENT
    noise = np.random.default_rng(99).standard_normal(added.shape).astype(np.float32)
    other = added + share * noise * float(np.linalg.norm(added) / np.linalg.norm(noise))
    true = float(np.linalg.norm(other - added)) / max(float(np.linalg.norm(other)), float(np.linalg.norm(added)))
    found = distance(print_of(b"s", [(SENT + added, SENT)]), print_of(b"s", [(SENT + other, SENT)]))
    assert abs(found - true) <= 0.4 * true + 1e-3


def test_the_worst_turn_counts() -> None:
    """Who answers the first turn rightly and the second with quick nonsense has not answered."""
    right = print_of(b"s", [(block(1), SENT), (block(2), SENT)])
    half = print_of(b"s", [(block(1), SENT), (block(3), SENT)])
    assert distance(right, half) > 0.9 and distance(right, right) == 0.0
    assert distance(right, print_of(b"s", [(block(1), SENT)])) > 100, "another number of turns is no answer to them"
