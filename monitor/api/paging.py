"""Lists in pages by key, not by number: a row that comes while somebody turns pages neither doubles nor hides another."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from ninja import Query

from monitor.api.problems import UNKNOWN_PAGE, Problem

PAGE = 100
MAX_PAGE = 500
MAX_CURSOR = 400
MAX_ID = 2**63 - 1

PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many items a page has at most")]
Cursor = Annotated[
    str, Query(max_length=MAX_CURSOR, description="Where to go on: what stands in `next`. Its letters mean nothing else")
]

Row = TypeVar("Row")


def page_of(found: Iterable[Row], limit: int, key: Callable[[Row], Any]) -> tuple[list[Row], str]:
    """Of rows in order, one more than the page holds where there are so many: the page, and the cursor of the next or ""."""
    rows = list(found)
    more = len(rows) > limit
    return rows[:limit], written(key(rows[limit - 1])) if more else ""


def written(key: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def read_id(cursor: str) -> int:
    """The id below which a list of newest first goes on; of an empty cursor one that is above all."""
    key = _read(cursor) if cursor else MAX_ID
    return key if isinstance(key, int) and not isinstance(key, bool) and 0 < key <= MAX_ID else refuse()


def read_words(cursor: str, count: int) -> tuple[str, ...]:
    """The words after which an alphabetical list goes on."""
    key = _read(cursor) if cursor else [""] * count
    if not isinstance(key, list) or len(key) != count or not all(isinstance(word, str) for word in key):
        refuse()
    return tuple(key)


def following(request: HttpRequest, response: HttpResponse, cursor: str) -> str | None:
    """The address of the next page, which also goes into the answer's Link header."""
    if not cursor:
        return None
    asked = {name: value for name, value in request.GET.items() if name != "cursor"}
    url = f"{request.path}?{urlencode({**asked, 'cursor': cursor})}"
    response["Link"] = f'<{url}>; rel="next"'
    return url


def _read(cursor: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError):
        return refuse()


def refuse() -> Any:
    raise Problem(UNKNOWN_PAGE, "this cursor leads nowhere; begin again without one")
