"""A page's live part as named pieces, each rendered once and known by a digest, so that only what changed need be sent.

The first load and every update render the same templates. Needs neither Redis nor a request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from monitor import pages, peer_page, queries
from monitor.extensions import panels, registered
from monitor.history.heat import SLOT_S, day_of_blocks
from monitor.history.incidents import confirmed
from monitor.history.minutes import moment
from monitor.history.peers import PeerHistory, peer_histories
from monitor.history.people import Carrier, carriers
from monitor.history.words import Story, story
from monitor.kept import kept
from monitor.listing import view_of
from monitor.published import Watch
from monitor.swarms import named

_RELATIVE = re.compile(r"(?<=>)[^<]*(?=</time>)")
"""What a clock has written: it goes on by itself in the page and is no change."""


@dataclass(frozen=True, slots=True)
class Part:
    """`html` is the inside of the element `p-NAME`. `own` marks what depends on the page's query string and is never pushed."""

    name: str
    html: str
    own: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(_RELATIVE.sub("", self.html).encode()).hexdigest()[:10]

    @property
    def safe(self) -> str:
        return mark_safe(self.html)  # noqa: S308  (our own template, rendered a moment ago)


@dataclass(frozen=True, slots=True)
class Rendered:
    """`found` is False where there is no such thing; the page says so, and which there are."""

    title: str
    parts: tuple[Part, ...]
    json: str = ""
    found: bool = True
    plots: bool = False
    """Whether there are series that a script may draw."""

    @property
    def digests(self) -> dict[str, str]:
        return {part.name: part.digest for part in self.parts}

    @property
    def etag(self) -> str:
        known = self.title + repr(self.digests)
        return f'W/"{hashlib.sha256(known.encode()).hexdigest()[:20]}"'

    def document(self, wanted: frozenset[str] = frozenset()) -> dict[str, Any]:
        """What an open page is sent: the parts that it wants, or all."""
        parts = {part.name: part.html for part in self.parts if not wanted or part.name in wanted}
        return {"title": self.title, "parts": parts, "digests": self.digests}


NO_QUERY: Mapping[str, str] = {}


def overview(seen: Watch) -> Rendered:
    shown = pages.overview_page(seen)
    context = {"page": shown, **addresses(seen)}
    incidents = _open_incidents(seen, None)
    parts = [render_part("top", "overview/top", context)]
    parts += [render_part(f"m-{model.prefix}", "overview/model", {**context, "model": model}) for model in shown.models]
    parts += [
        Part(f"x-{panel.key}", render_to_string(panel.template, {"items": _items(panel.key, panel.items, seen), **context}))
        for panel in panels()
    ]
    parts.append(render_part("incidents", "overview/incidents", {**context, "stories": incidents}))
    parts.append(render_part("people", "overview/people", {**context, "people": _people(seen)}))
    parts.append(render_part("watch", "overview/watch", context))
    parts.append(render_part("dropped", "overview/dropped", context))
    return Rendered(shown.title, tuple(parts), f"/api/v1/models{context['query']}")


def model(seen: Watch, prefix: str, query: Mapping[str, str] = NO_QUERY) -> Rendered:
    view = view_of(query)
    shown = pages.model_page(seen, prefix, view)
    if shown is None:
        return _absent(seen, prefix)
    context = {"page": shown, **addresses(seen)}
    parts = [render_part(name, f"model/{name}", context) for name in ("top", "blocks", "gaps")]
    parts += _extensions(seen, prefix)
    parts.append(render_part("bars", "model/bars", context))
    parts.append(Part("servers", render_to_string("monitor/model/servers.html", context), own=not view.plain))
    parts += [render_part("speed", "model/speed", context), render_part("days", "model/days", context)]
    parts.append(render_part("heat", "model/heat", {**context, **_heat(seen, prefix)}))
    parts.append(render_part("dropped", "model/dropped", context))
    return Rendered(shown.title, tuple(parts), f"{shown.json}{context['query']}")


def peer(seen: Watch, peer_id: str) -> Rendered:
    known = queries.servers_of(seen.swarm, peer_id)
    told = _histories(seen, known, peer_id)
    subjects = [peer_page.Subject(item.model, item.server, item.sighting, told.get(item.model_id)) for item in known]
    shown = peer_page.peer_page(seen, peer_id, subjects)
    context = {"page": shown, **addresses(seen)}
    parts = [render_part("top", "peer/top", context)]
    parts += [render_part(f"m-{item.prefix}", "peer/serving", {**context, "item": item}) for item in shown.servings]
    json = f"/api/v1/peers/{peer_id}/uptime{context['query']}" if shown.seen else f"/api/v1/is_reachable/{peer_id}"
    return Rendered(
        shown.title, tuple(parts), json, found=shown.seen, plots=any(item.mean or item.cache for item in shown.servings)
    )


def addresses(seen: Watch) -> dict[str, Any]:
    """What every template needs to lead on within the swarm, and to keep what is dear until the next crawl."""
    watched = named(seen.swarm)
    found = {"base": watched.base, "query": watched.query} if watched is not None else {"base": "", "query": ""}
    return {"swarm_name": seen.swarm, "moment": _moment(seen), **found}


def _absent(seen: Watch, prefix: str) -> Rendered:
    shown = pages.absent_page(seen, prefix)
    part = render_part("top", "absent", {"page": shown, **addresses(seen)})
    return Rendered(shown.title, (part,), f"/api/v1/models{addresses(seen)['query']}", found=False)


def render_part(name: str, template: str, context: Mapping[str, Any]) -> Part:
    return Part(name, render_to_string(f"monitor/{template}.html", dict(context)))


def _extensions(seen: Watch, prefix: str) -> list[Part]:
    return [
        Part(
            f"x-{extension.key}",
            render_to_string(
                extension.template,
                {"items": extension.documents(seen.swarm, [prefix])[prefix], "prefix": prefix, **addresses(seen)},
            ),
        )
        for extension in registered()
    ]


def _items(key: str, ask: Any, seen: Watch) -> list[Any]:
    return kept(("panel", key, seen.swarm, _moment(seen)), lambda: ask(seen)) if seen.sees else []


def _open_incidents(seen: Watch, prefix: str | None) -> list[Story]:
    rows = confirmed(seen.swarm).filter(ended_before__isnull=True)
    return [story(row, seen.read_at) for row in (rows if prefix is None else rows.filter(model__prefix=prefix))[:20]]


def _people(seen: Watch) -> list[Carrier]:
    """With the names that the servers give themselves now."""
    found = kept(("people", seen.swarm, _moment(seen)), lambda: carriers(seen.swarm, seen.read_at))
    models = seen.published.snapshot.models if seen.published else ()
    names = {server.peer_id: server.record.public_name or "" for model in models for server in model.servers}
    return [replace(carrier, public_name=names.get(carrier.peer_id, "")) for carrier in found]


def _heat(seen: Watch, prefix: str) -> dict[str, Any]:
    """The picture of the last day, with the time (UTC) at every sixth of it."""
    slot = int(seen.read_at // SLOT_S)
    shown, first = kept(
        ("heat", seen.swarm, prefix, _moment(seen), slot), lambda: day_of_blocks(seen.swarm, prefix, seen.read_at)
    )
    hours = [f"{moment(first + part * 4 * 3_600):%H:%M}" for part in range(7)] if shown else []
    return {"heat": shown, "heat_hours": hours}


def _histories(seen: Watch, known: Iterable[queries.Known], peer_id: str) -> Mapping[int, PeerHistory]:
    models = tuple(item.model_id for item in known)
    return kept(
        ("peer", models, peer_id, _moment(seen), int(seen.read_at // 60)),
        lambda: peer_histories(models, peer_id, seen.read_at),
    )


def _moment(seen: Watch) -> float | None:
    return seen.last_crawl.finished_at if seen.last_crawl else None
