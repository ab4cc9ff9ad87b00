"""Two column types that Django lacks: the minutes of a day, and a set of blocks as ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from psycopg.types.multirange import Multirange

from monitor.history.minutes import NO_MINUTE, Minutes
from swarm.wire.spans import Span, runs

if TYPE_CHECKING:
    _Field = models.Field[Any, Any]
    _Float = models.FloatField[Any, Any]
else:
    _Field, _Float = models.Field, models.FloatField


class MinutesField(_Field):
    """bit(1440), 188 bytes; Postgres counts, joins and cuts it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", Minutes)
        super().__init__(*args, **kwargs)

    def db_type(self, connection: Any) -> str:
        return f"bit({len(NO_MINUTE)})"

    def from_db_value(self, value: str | None, *_: object) -> Minutes | None:
        return None if value is None else Minutes(value)

    def get_prep_value(self, value: Minutes | None) -> str | None:
        return None if value is None else value.text


class RealField(_Float):
    """Four bytes: a throughput is known to three digits at best."""

    def db_type(self, connection: Any) -> str:
        return "real"


class BlocksField(_Field):
    """int4multirange: half-open, like spans."""

    def db_type(self, connection: Any) -> str:
        return "int4multirange"

    def from_db_value(self, value: Multirange[int] | None, *_: object) -> tuple[Span, ...]:
        return tuple(Span(part.lower, part.upper) for part in value or () if part.lower is not None and part.upper)

    def get_prep_value(self, value: tuple[Span, ...]) -> str:
        return as_multirange(value)


def as_multirange(spans: tuple[Span, ...]) -> str:
    return "{" + ",".join(f"[{span.start},{span.end})" for span in spans) + "}"


def blocks_of(blocks: set[int] | frozenset[int]) -> str:
    return as_multirange(runs(blocks))
