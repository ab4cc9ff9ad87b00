"""The doctor's code: what goes in comes out, and a mistyped letter is noticed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import BadRecord
from swarm.wire.doctor import CHECKS, LETTERS, SLOTS, Mark, decode, encode

marks = st.dictionaries(st.sampled_from(CHECKS), st.sampled_from([Mark.RIGHT, Mark.WARNING, Mark.ERROR]))


@given(marks)
def test_what_was_found_survives_the_code(found: dict[str, Mark]) -> None:
    code = encode(found)
    assert len(code) == 11 and code[5] == "-"
    assert decode(code) == found and list(decode(code)) == [name for name in CHECKS if name in found]


@given(marks)
def test_case_spaces_and_letters_that_look_like_digits_do_not_matter(found: dict[str, Mark]) -> None:
    code = encode(found)
    assert decode(f"  {code.lower().replace('-', ' ').replace('0', 'o').replace('1', 'l')} ") == found


@given(marks, st.integers(0, 9), st.sampled_from(LETTERS))
def test_a_mistyped_letter_is_noticed(found: dict[str, Mark], place: int, letter: str) -> None:
    code = encode(found).replace("-", "")
    if code[place] == letter:
        return
    with pytest.raises(BadRecord, match=r"mistyped|newer"):
        decode(code[:place] + letter + code[place + 1 :])


@given(marks, st.integers(0, 8))
def test_two_swapped_letters_are_noticed(found: dict[str, Mark], place: int) -> None:
    code = encode(found).replace("-", "")
    swapped = code[:place] + code[place + 1] + code[place] + code[place + 2 :]
    if swapped != code:
        with pytest.raises(BadRecord, match=r"mistyped|newer"):
            decode(swapped)


@pytest.mark.parametrize("code", ["", "12345", "00000-0000!", "00000-000000", "é" * 10])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(BadRecord, match="letters and digits"):
        decode(code)


@given(st.text(max_size=40))
def test_any_text_ends_in_a_code_or_a_bad_record(text: str) -> None:
    with contextlib.suppress(BadRecord):
        assert set(decode(text)) <= set(CHECKS)


def test_there_is_room_for_more_checks() -> None:
    assert len(CHECKS) < SLOTS and len(set(CHECKS)) == len(CHECKS)
