"""What was said so far. It travels in the page's form, and no copy of it is kept on this side. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

LONGEST_QUESTION = 1_000
"""Characters."""
LONGEST_HISTORY = 10 * 1024
"""Bytes; with a question it stays below the limit for forms (DATA_UPLOAD_MAX_MEMORY_SIZE). What is older is forgotten."""
MOST_TURNS = 100


class Turn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    role: Literal["user", "assistant"]
    content: str = Field(max_length=LONGEST_HISTORY)


Turns = tuple[Turn, ...]
_TURNS = TypeAdapter(list[Turn])


class NotUnderstood(Exception):
    """A sentence for whoever sent the form."""


@dataclass(frozen=True, slots=True)
class Said:
    """`turns` end with the question that is to be answered; `before` is what came before it."""

    turns: Turns

    @property
    def before(self) -> Turns:
        return self.turns[:-1]

    @property
    def question(self) -> str:
        return self.turns[-1].content


def read(question: str, history: str) -> Said:
    """Raises NotUnderstood."""
    asked = question.replace("\r\n", "\n").strip()
    if not asked:
        raise NotUnderstood("Write something first.")
    if len(asked) > LONGEST_QUESTION:
        raise NotUnderstood(f"That is too long: {len(asked):,} characters, of {LONGEST_QUESTION:,} at most.")
    return Said((*read_history(history), Turn(role="user", content=asked)))


def read_history(history: str) -> Turns:
    """Raises NotUnderstood, which only a form of somebody's own making can cause."""
    try:
        turns = tuple(_TURNS.validate_json(history or "[]"))
    except ValidationError as error:
        raise NotUnderstood("What was said before could not be read; start again.") from error
    if len(turns) > MOST_TURNS or len(history.encode()) > 2 * LONGEST_HISTORY:
        raise NotUnderstood("What was said before is too long; start again.")
    return turns


def write_history(turns: Turns) -> str:
    """The newest turns, as many as the form holds; the first of them is a question."""
    while turns:
        text = json.dumps([turn.model_dump() for turn in turns], ensure_ascii=False)
        if len(text.encode()) <= LONGEST_HISTORY and len(turns) <= MOST_TURNS:
            return text
        turns = turns[2:]
    return "[]"
