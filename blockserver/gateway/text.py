"""Tokens -> text, piece by piece, so that what was given out never has to be taken back. Knows no model.

A character may take several tokens; until it is whole, its bytes decode to a replacement character. A stop string may come
in several pieces; until it is clear that it does not, its beginning is held back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

HALF = "�"
MOST_HALVES = 3
"""Of four bytes the first three may each be shown as a replacement character."""
LONGEST_WINDOW = 64
"""Tokens that are decoded again with each new one. So long a text without a whole character at its end is no text."""

Decode = Callable[[Sequence[int]], str]


class Detokeniser:
    """`decode` turns tokens into text, special tokens left out and nothing tidied up.

    The last tokens are decoded together with each new one, since some tokenizers drop the blank before the first word of what
    they are given, and the bytes of a character may be spread over several tokens.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._context = 0
        """So many tokens at the window's beginning are there only for the others' sake."""
        self._given = 0
        """Characters of the window's text that were given out."""

    def add(self, token: int) -> str:
        """The text that this token completes; empty while a character is half there."""
        self._window.append(token)
        text = self._decode(self._window)
        too_long = len(self._window) > LONGEST_WINDOW
        halves = _halves(text)
        if halves and len(self._window) - self._context <= MOST_HALVES:
            # Some tokenizers show all bytes of a row as halves while the last of them are no character.
            return ""
        whole = len(text) if too_long else len(text) - halves
        fresh = text[self._given : whole]
        self._given = max(self._given, whole)
        if too_long or (fresh and whole == len(text)):
            self._window = self._window[self._context :][-LONGEST_WINDOW // 2 :]
            self._context = len(self._window)
            self._given = len(self._decode(self._window))
        return fresh

    def end(self) -> str:
        """What is left when no more tokens come: half a character is then shown as such."""
        rest = self._decode(self._window)[self._given :]
        self._window, self._context, self._given = [], 0, 0
        return rest


def _halves(text: str) -> int:
    """Replacement characters at the end that may yet become a character."""
    return min(len(text) - len(text.rstrip(HALF)), MOST_HALVES)


class StopFinder:
    """Passes text on until the first of some stop strings, which is left out together with all that follows."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """What may be given out now."""
        if self.found:
            return ""
        self._held += text
        places = [place for place in (self._held.find(stop) for stop in self._stops) if place >= 0]
        if places:
            self.found = True
            given, self._held = self._held[: min(places)], ""
            return given
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        given, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return given

    def end(self) -> str:
        """What was held back in vain."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
