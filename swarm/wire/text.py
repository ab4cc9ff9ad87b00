"""Text that strangers wrote, made safe to show: no control or direction-changing characters, and not too long."""

from __future__ import annotations

import unicodedata

MAX_TEXT_LENGTH = 64
"""Characters of a name or version that anyone needs to see."""

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_JOINER = "‍"
"""Zero-width joiner: a format character, but emoji families are built with it."""


def clean_text(value: object, limit: int = MAX_TEXT_LENGTH) -> str | None:
    """The text without characters that hide or reorder others; None where nothing readable is left or it is no text."""
    if not isinstance(value, str):
        return None
    shown = "".join(
        char for char in value[: 4 * limit] if char == _JOINER or unicodedata.category(char) not in _HIDDEN_CATEGORIES
    )
    return " ".join(shown.split())[:limit].strip(_JOINER) or None
