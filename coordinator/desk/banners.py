"""Puts the staff's banners at the top of public pages: a context processor, whose query runs only where a template asks."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest

from coordinator.desk import rulings


def banners(request: HttpRequest) -> dict[str, Any]:
    @cache
    def now() -> list[str]:
        try:
            return rulings.banners(time.time())
        except DatabaseError:
            # Also a page that says that something is down stands in this frame.
            return []

    return {"staff_banners": now}
