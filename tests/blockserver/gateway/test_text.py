"""Text comes out piece by piece, and together it is what the tokens say: no half characters, no stop text, nothing lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from blockserver.gateway.text import HALF, LONGEST_WINDOW, Detokeniser, StopFinder
from tests.speaking import SPECIAL, byte_tokenizer

BYTES = byte_tokenizer()
FALLBACK = Tokenizer(
    BPE({f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁so": 256, "▁it": 257, "goes": 258}, [], byte_fallback=True)
)
FALLBACK.decoder = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def decode(tokens: Sequence[int]) -> str:
    return str(BYTES.decode(list(tokens), skip_special_tokens=True))


def decode_with_fallback(tokens: Sequence[int]) -> str:
    """As Llama's first tokenizers: words with a blank before them, and bytes for what is no word."""
    return str(FALLBACK.decode(list(tokens)))


def pieces(tokens: Sequence[int], how: object = decode) -> list[str]:
    text = Detokeniser(how)  # type: ignore[arg-type]
    return [*(text.add(token) for token in tokens), text.end()]


@given(st.text(max_size=60))
def test_text_is_given_out_as_it_is_and_whole_characters_only(said: str) -> None:
    found = pieces(BYTES(said)["input_ids"])
    assert "".join(found) == said
    assert HALF in said or not any(HALF in piece for piece in found)


@given(st.lists(st.integers(0, len(BYTES) - 1), max_size=200))
def test_any_tokens_give_what_they_give_together(tokens: list[int]) -> None:
    assert "".join(pieces(tokens)) == decode(tokens)


@given(st.text(st.sampled_from("aé€😀"), min_size=1, max_size=20))
def test_each_character_comes_with_its_last_byte(said: str) -> None:
    found = pieces(BYTES(said)["input_ids"])
    sizes = [len(character.encode()) for character in said]
    expected = [piece for size, character in zip(sizes, said, strict=True) for piece in [""] * (size - 1) + [character]]
    assert found == [*expected, ""]


@given(st.lists(st.sampled_from(["▁so", "▁it", "goes", "é", "😀"]), min_size=1, max_size=20))
def test_blanks_between_words_survive_a_tokenizer_that_drops_the_first_one(words: list[str]) -> None:
    tokens = [token for word in words for token in _with_fallback(word)]
    found = pieces(tokens, decode_with_fallback)
    assert "".join(found) == "".join(words).replace("▁", " ").removeprefix(" ")
    assert not any(HALF in piece for piece in found)


def _with_fallback(word: str) -> list[int]:
    known = FALLBACK.token_to_id(word)
    return list(word.encode()) if known is None else [known]


def test_half_a_character_at_the_very_end_is_shown_as_such() -> None:
    assert pieces(BYTES("a😀")["input_ids"][:-1]) == ["a", "", "", "", HALF]


def test_bytes_that_are_no_character_do_not_pile_up() -> None:
    text = Detokeniser(decode)
    tokens = [BYTES("é")["input_ids"][0]] * 1_000
    said = "".join(text.add(token) for token in tokens)
    assert len(said) > 900 and set(said) == {HALF}
    assert len(text._window) <= LONGEST_WINDOW


def test_special_tokens_are_not_said() -> None:
    ends = [BYTES.convert_tokens_to_ids(name) for name in SPECIAL]
    assert "".join(pieces([*BYTES("a")["input_ids"], *ends, *BYTES("b")["input_ids"]])) == "ab"


@given(st.text("ab ", max_size=30), st.lists(st.text("ab ", min_size=1, max_size=4), max_size=4), st.lists(st.integers(0, 30)))
def test_all_before_the_first_stop_text_is_given_and_nothing_after(said: str, stops: list[str], cuts: list[int]) -> None:
    places = sorted({0, len(said), *(cut for cut in cuts if cut <= len(said))})
    finder = StopFinder(stops)
    given_out = "".join(finder.add(said[a:b]) for a, b in pairwise(places)) + finder.end()
    found = [place for place in (said.find(stop) for stop in stops) if place >= 0]
    assert finder.found == bool(found)
    if found:
        # Piece by piece the stop text that is complete first counts; whole, the one that begins first.
        assert said.startswith(given_out) and len(given_out) >= min(found)
    else:
        assert given_out == said


def test_a_beginning_that_goes_on_differently_is_given_out_late_but_whole() -> None:
    finder = StopFinder(["END"])
    assert [finder.add("the E"), finder.add("N"), finder.add("d"), finder.end()] == ["the ", "", "ENd", ""]
