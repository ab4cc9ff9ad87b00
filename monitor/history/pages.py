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
from monitor.rulings import staff

A_PAGE = 50


def incidents(seen: Watch, query: Mapping[str, str]) -> Rendered:
    now, swarm = seen.read_at, seen.swarm
    page = Paginator(confirmed(swarm).filter(ended_before__isnull=False), A_PAGE).get_page(query.get("page"))
    opened, closed = list(confirmed(swarm).filter(ended_before__isnull=True)), list(page)
    oldest = min((row.started_after or row.started_before for row in (*opened, *closed)), default=None)
    windows = staff().maintenance(swarm, oldest.timestamp(), now) if oldest else ()
    watched, possible = swarm_watched(swarm, now)
    context: dict[str, Any] = {
        "open": [story(row, now, windows) for row in opened],
        "past": [story(row, now, windows) for row in closed],
        "page": page,
        "calendar": calendar(overlapping(swarm, now - DAYS * 86_400), now, DAYS),
        "days": DAYS,
        "watched": watched,
        "possible": possible,
        **addresses(seen),
    }
    title = f"! {len(opened)} open incidents" if opened else "✓ No incident is open"
    names = ("open", "calendar", "past")
    parts = tuple(render_part(name, f"incidents/{name}", context) for name in names)
    return Rendered(title, parts, f"/api/v1/incidents{context['query']}")


def incident(seen: Watch, number: str) -> Rendered:
    row = confirmed(seen.swarm).filter(pk=int(number)).first() if number.isdigit() and int(number) < 2**63 else None
    context = {"number": number, **addresses(seen)}
    if row is None:
        absent = (render_part("top", "incidents/absent", context),)
        return Rendered(f"There is no incident {number}", absent, f"/api/v1/incidents{context['query']}", found=False)
    windows = staff().maintenance(seen.swarm, (row.started_after or row.started_before).timestamp(), seen.read_at)
    told = story(row, seen.read_at, windows)
    whole = (render_part("top", "incidents/one", {**context, "story": told, "notes": staff().notes(row.pk)}),)
    return Rendered(f"{told.symbol} {told.title}", whole, f"/api/v1/incidents/{row.pk}{context['query']}")
