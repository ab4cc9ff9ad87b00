"""What `sepal doctor` found, as a code of ten letters that a person can copy from a terminal into a web page.

Two bits a check (not checked, right, warning, error) and a check sum, in Crockford's base 32, which has no letters that look
like digits. Nothing else is in it: no addresses, names or sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from swarm.errors import BadRecord

CHECKS = (
    "addresses",
    "gpu",
    "model",
    "memory",
    "state folder",
    "cache folder",
    "disk",
    "identity",
    "open files",
    "internet",
    "clock",
    "bootstrap",
    "prefix",
    "version",
    "site",
    "port",
    "token",
)
"""In the order of the code's bits: a new check goes to the end, and one that is no more stays."""

SLOTS = 20
"""Checks that a code has room for; with ten bits of check sum that makes fifty bits, ten letters."""
SUM_BITS = 10
_PRIME = 1_021
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = (2 * SLOTS + SUM_BITS) // 5
_READ_AS = str.maketrans("OILU", "011V")


class Mark(IntEnum):
    UNCHECKED = 0
    RIGHT = 1
    WARNING = 2
    ERROR = 3


def encode(marks: Mapping[str, Mark]) -> str:
    """`XXXXX-XXXXX`. Checks without a place in the code are left out."""
    bits = 0
    for place, name in enumerate(CHECKS):
        bits |= marks.get(name, Mark.UNCHECKED) << 2 * place
    number = bits << SUM_BITS | _sum(bits)
    letters = "".join(LETTERS[number >> 5 * place & 31] for place in reversed(range(LENGTH)))
    return f"{letters[:5]}-{letters[5:]}"


def decode(code: str) -> dict[str, Mark]:
    """What was checked, in order. Letter case, spaces and dashes do not matter. Raises BadRecord."""
    plain = "".join(code.upper().split()).replace("-", "").translate(_READ_AS)
    if len(plain) != LENGTH or any(letter not in LETTERS for letter in plain):
        raise BadRecord("shape", f"a code has {LENGTH} letters and digits, as in 00000-00000")
    number = 0
    for letter in plain:
        number = number << 5 | LETTERS.index(letter)
    bits = number >> SUM_BITS
    if number & (1 << SUM_BITS) - 1 != _sum(bits):
        raise BadRecord("shape", "the check sum is wrong: a letter was mistyped")
    if bits >> 2 * len(CHECKS):
        raise BadRecord("shape", "it is of a newer doctor than this site knows")
    marks = {name: Mark(bits >> 2 * place & 3) for place, name in enumerate(CHECKS)}
    return {name: mark for name, mark in marks.items() if mark is not Mark.UNCHECKED}


def _sum(bits: int) -> int:
    """The rest by a prime above 31: one letter changed, or two neighbours swapped, always changes it."""
    return bits % _PRIME
