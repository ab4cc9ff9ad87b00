"""Text that strangers wrote, made safe to show: no control or direction-changing characters, and not too long."""

from __future__ import annotations

import unicodedata

MAX_TEXT_LENGTH = 64
"""Characters of a name or version that anyone needs to see."""

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_JOINER = "\u200d"
"""Zero-width joiner: a format character, but emoji families are built with it."""


def clean_text(value: object, limit: int = MAX_TEXT_LENGTH) -> str | None:
    """The text without characters that hide or reorder others; None where nothing readable is left or it is no text."""
    if not isinstance(value, str):
        return None
    shown = "".join(" " if char.isspace() else char for char in value[: 4 * limit] if char.isspace() or _is_shown(char))
    return " ".join(shown.split())[:limit].strip(_JOINER) or None


def _is_shown(char: str) -> bool:
    return char == _JOINER or unicodedata.category(char) not in _HIDDEN_CATEGORIES
