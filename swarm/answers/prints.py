"""What a probe asks of a block, and the few numbers that are kept of its answer. Pure: the seed is an argument.

Whoever has the seed asks the very same; a server that has not cannot know it before. Of an answer what the blocks *add* is
looked at: most of the rest is the input, and its echo would look right. Knows arrays, not how they travel nor whose they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

NUMBERS = 64
"""Kept of each turn. Two answers' distance is then known to about a tenth of itself."""
ECHO = 1e-3
"""Who adds less than this share of the input has added nothing: half of what bfloat16 can tell apart at all."""

_DTYPES = {"float16": "<f2", "float32": "<f4"}
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class Wrong(StrEnum):
    """Wrong by itself, whatever anybody else answers. For people: `its answer …`."""

    SHAPE = "is not of the shape that was sent"
    DTYPE = "is not of a type that servers compute in"
    NOT_FINITE = "holds values that are not finite"
    ZEROS = "is all zeros"
    ECHO = "is what was sent"
    ONE_FOR_ALL = "is for all its blocks the same as for one of them"


@dataclass(frozen=True, slots=True)
class Print:
    """What is kept of the answers to one question: the length of what was added, and for each turn `NUMBERS` sums of it under
    random signs."""

    norm: float
    numbers: tuple[float, ...]

    @property
    def turns(self) -> list[tuple[float, ...]]:
        return [self.numbers[first : first + NUMBERS] for first in range(0, len(self.numbers), NUMBERS)]


def question(seed: bytes, turn: int, tokens: int, width: int) -> bytes:
    """Hidden states `[1, tokens, width]` as a float16 buffer: 1/16 to 1/8 with either sign, each exact in bfloat16 as well, so
    that no server rounds the input."""
    words = np.frombuffer(_stream(seed, f"input {turn}", 2 * tokens * width), dtype="<u2")
    # The exponent of 1/16; of ten bits behind the point the seven that bfloat16 has; the sign.
    return (np.uint16(0x2C00) | (words & np.uint16(0x83F8))).astype("<u2").tobytes()


def asked(buffer: bytes, tokens: int, width: int) -> Floats:
    return np.frombuffer(buffer, dtype="<f2").astype(np.float32).reshape(tokens, width)


def answered(buffer: bytes, dtype: str, size: Sequence[int], tokens: int, width: int) -> Floats | Wrong:
    """The numbers `[tokens, width]` that a peer's bytes stand for. Also reads bfloat16 in its older form of four bytes."""
    if list(size) != [1, tokens, width]:
        return Wrong.SHAPE
    if dtype not in _BYTES:
        return Wrong.DTYPE
    count = tokens * width
    whole = dtype == "bfloat16" and len(buffer) == 4 * count
    if not whole and len(buffer) != _BYTES[dtype] * count:
        return Wrong.SHAPE
    if whole or dtype != "bfloat16":
        numbers = np.frombuffer(buffer, dtype="<f4" if whole else _DTYPES[dtype]).astype(np.float32)
    else:
        numbers = (np.frombuffer(buffer, dtype="<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers.reshape(tokens, width)


def wrong(answer: Floats, sent: Floats) -> Wrong | None:
    """What is wrong with an answer of the right shape, to be seen without knowing the model."""
    if not np.isfinite(answer).all():
        return Wrong.NOT_FINITE
    if not answer.any():
        return Wrong.ZEROS
    return Wrong.ECHO if _length(answer - sent) < ECHO * _length(sent) else None


def print_of(seed: bytes, turns: Sequence[tuple[Floats, Floats]]) -> Print:
    """Of each turn's (answer, sent). Answers must be finite."""
    added = [(answer - sent).astype(np.float64) for answer, sent in turns]
    sums = [_sums(seed, turn, one) for turn, one in enumerate(added)]
    norm = float(np.sqrt(sum(float((one**2).sum()) for one in added)))
    return Print(_rounded(norm), tuple(_rounded(float(number)) for each in sums for number in each))


def _sums(seed: bytes, turn: int, added: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each value goes, with a random sign, into one of the sums: lengths and distances are kept, on average exactly."""
    dice = np.frombuffer(_stream(seed, f"print {turn}", added.size), dtype=np.uint8)
    signs = 1.0 - 2.0 * (dice >> 7)
    return np.bincount(dice % NUMBERS, signs * added.ravel(), NUMBERS).astype(np.float64)


def _stream(seed: bytes, what: str, length: int) -> bytes:
    return hashlib.shake_256(seed + what.encode()).digest(length)


def _length(values: Floats) -> float:
    return float(np.sqrt((values.astype(np.float64) ** 2).sum()))


def _rounded(number: float) -> float:
    """Five digits are more than two honest servers have in common."""
    return float(f"{number:.5g}")
