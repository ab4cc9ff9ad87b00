"""The incident pages as named parts, like every live page. Reads, and hands over to the templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.paginator import Paginator

from monitor.history.calendar import calendar
from monitor.history.incidents import confirmed, overlapping
from monitor.history.uptime import DAYS, swarm_watched
from monitor.history.words import story
from monitor.parts import Rendered, addresses, render_part
from monitor.published import Watch

A_PAGE = 50


def incidents(seen: Watch, query: Mapping[str, str]) -> Rendered:
    now, swarm = seen.read_at, seen.swarm
    page = Paginator(confirmed(swarm).filter(ended_before__isnull=False), A_PAGE).get_page(query.get("page"))
    still_open = [story(row, now) for row in confirmed(swarm).filter(ended_before__isnull=True)]
    watched, possible = swarm_watched(swarm, now)
    context: dict[str, Any] = {
        "open": still_open,
        "past": [story(row, now) for row in page],
        "page": page,
        "calendar": calendar(overlapping(swarm, now - DAYS * 86_400), now, DAYS),
        "days": DAYS,
        "watched": watched,
        "possible": possible,
        **addresses(seen),
    }
    title = f"! {len(still_open)} open incidents" if still_open else "✓ No incident is open"
    names = ("open", "calendar", "past")
    parts = tuple(render_part(name, f"incidents/{name}", context) for name in names)
    return Rendered(title, parts, f"/api/v1/incidents{context['query']}")


def incident(seen: Watch, number: str) -> Rendered:
    row = confirmed(seen.swarm).filter(pk=int(number)).first() if number.isdigit() and int(number) < 2**63 else None
    context = {"number": number, **addresses(seen)}
    if row is None:
        absent = (render_part("top", "incidents/absent", context),)
        return Rendered(f"There is no incident {number}", absent, f"/api/v1/incidents{context['query']}", found=False)
    told = story(row, seen.read_at)
    whole = (render_part("top", "incidents/one", {**context, "story": told}),)
    return Rendered(f"{told.symbol} {told.title}", whole, f"/api/v1/incidents/{row.pk}{context['query']}")
