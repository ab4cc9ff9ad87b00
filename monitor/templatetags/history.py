"""`{% history_bars prefix %}`: a model's ninety days. One query for a page at most, however many models it lists."""

from __future__ import annotations

import time
from typing import Any

from django import template
from django.conf import settings

from monitor.history.bars import history
from monitor.history.uptime import DAYS, model_days
from monitor.kept import kept

register = template.Library()


@register.inclusion_tag("monitor/_history.html", takes_context=True)
def history_bars(context: template.Context, prefix: str, swarm: str = "", heading: bool = True) -> dict[str, Any]:
    """`swarm` is the site's own where none is named; without `heading` only bars and summary are shown."""
    swarm = swarm or settings.SEPAL_SWARM
    now = time.time()
    days = kept(("days", swarm, context.get("moment"), int(now // 60)), lambda: model_days(swarm, now)).get(prefix)
    return {"history": history(days) if days else None, "prefix": prefix, "heading": heading, "days": DAYS}
