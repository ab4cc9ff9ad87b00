"""A model's state as a badge: an SVG of at most 2 KB, or the JSON that shields.io draws one from. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from html import escape
from typing import Any

from monitor.published import Standing, name_of
from swarm.coverage import Verdict
from swarm.wire.spans import in_words

MAX_AGE_S = 60
LABEL_LENGTH = 32
MESSAGE_LENGTH = 32

COLOURS = {Verdict.COMPLETE: "0b5c94", Verdict.THIN: "8a5a00", Verdict.BROKEN: "8f1d14", Verdict.UNKNOWN: "5a6470"}
"""The pages' own, on which white text has a contrast of 4.5 or more; the words say the same without them."""

_WIDTH = 6.6
"""Pixels of a usual letter at 11 px; `textLength` makes the text fit where a letter is not usual."""


@dataclass(frozen=True, slots=True)
class Badge:
    label: str
    message: str
    colour: str
    is_error: bool = False


def badge(item: Standing) -> Badge:
    return Badge(_short(name_of(item.model), LABEL_LENGTH), _message(item), COLOURS[item.verdict])


def nothing_known(prefix: str, words: str, *, is_error: bool) -> Badge:
    return Badge(_short(prefix, LABEL_LENGTH), words, COLOURS[Verdict.UNKNOWN], is_error)


def shields(shown: Badge) -> dict[str, Any]:
    """shields.io's endpoint schema."""
    return {
        "schemaVersion": 1,
        "label": shown.label,
        "message": shown.message,
        "color": shown.colour,
        "isError": shown.is_error,
        "cacheSeconds": MAX_AGE_S,
    }


def svg(shown: Badge) -> str:
    label, message = escape(shown.label), escape(shown.message)
    left, right = _pixels(shown.label), _pixels(shown.message)
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-labelledby="t">'
        f'<title id="t">{label}: {message}</title>'
        f'<rect width="{width}" height="20" rx="3" fill="#333b44"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left}z" fill="#{shown.colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" aria-hidden="true">'
        f'<text x="6" y="14" textLength="{left - 12}" lengthAdjust="spacingAndGlyphs">{label}</text>'
        f'<text x="{left + 6}" y="14" textLength="{right - 12}" lengthAdjust="spacingAndGlyphs">{message}</text></g></svg>\n'
    )


def _message(item: Standing) -> str:
    if item.verdict is Verdict.BROKEN:
        return _short(f"cannot run: {in_words(item.coverage.holes)}", MESSAGE_LENGTH)
    if item.verdict is Verdict.THIN:
        return "runs, some blocks thin"
    return "runs" if item.verdict is Verdict.COMPLETE else "unknown"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _pixels(text: str) -> int:
    """With six pixels at each side. Wide characters take twice the room."""
    letters = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return round(letters * _WIDTH) + 12
