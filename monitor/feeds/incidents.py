"""Incidents as Atom and as JSON Feed 1.1. An entry keeps its id for good; `updated` is when it was confirmed, then when it
was over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.utils.feedgenerator import Atom1Feed

from monitor.history import words
from monitor.history.models import Incident
from monitor.swarms import WatchedSwarm

LISTED = 50
ATOM = "application/atom+xml; charset=utf-8"
JSON_FEED = "application/feed+json"


@dataclass(frozen=True, slots=True)
class Entry:
    id: str
    url: str
    title: str
    text: str
    published: datetime
    updated: datetime
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Feed:
    """`site` is the site's own address, without a slash at the end."""

    site: str
    watched: WatchedSwarm
    prefix: str
    entries: tuple[Entry, ...]

    @property
    def title(self) -> str:
        return f"Incidents of {self.prefix or self.watched.label}"

    def address(self, path: str) -> str:
        first = "" if not self.watched.query else self.watched.name
        asked = {key: value for key, value in (("swarm", first), ("model", self.prefix)) if value}
        return f"{self.site}{path}" + (f"?{urlencode(asked)}" if asked else "")

    @property
    def updated(self) -> datetime | None:
        return max((entry.updated for entry in self.entries), default=None)


def entry(row: Incident, site: str, watched: WatchedSwarm) -> Entry:
    assert row.confirmed_at is not None  # only confirmed ones are listed
    host = urlsplit(site).hostname or "localhost"
    return Entry(
        # A tag URI: the day is the incident's own, so that the id outlives a change of the site's address on another day.
        id=f"tag:{host},{row.started_before:%Y-%m-%d}:{row.swarm}/incidents/{row.pk}",
        url=f"{site}/incidents/{row.pk}{watched.query}",
        title=words.title(row),
        text=_text(row),
        published=row.confirmed_at,
        updated=row.ended_before or row.confirmed_at,
        tags=(row.kind, *([row.model.prefix] if row.model else [])),
    )


def _text(row: Incident) -> str:
    over = f" Over {words.ended(row)}." if row.ended_before else " Not over yet."
    left = [f"…{one['peer_id'][-6:]} {one['how']}" for one in row.left]
    who = f" Who left: {'; '.join(left)}." if left else ""
    return f"{words.explanation(row)} Began {words.started(row)}.{over}{who}"


class _Atom(Atom1Feed):
    def latest_post_date(self) -> datetime:
        """An empty feed was never updated: the moment of reading would make it new for everyone, each time."""
        dates = [item["updateddate"] for item in self.items]
        return max(dates, default=datetime(1970, 1, 1, tzinfo=UTC))


def atom(feed: Feed) -> bytes:
    made = _Atom(
        title=feed.title,
        link=feed.address("/incidents"),
        description="Gaps and warnings, as the monitor saw them.",
        language="en",
        author_name=urlsplit(feed.site).hostname or "Sepal",
        feed_url=feed.address("/incidents.atom"),
        feed_guid=feed.address("/incidents.atom"),
    )
    for item in feed.entries:
        made.add_item(
            title=item.title,
            link=item.url,
            description=item.text,
            unique_id=item.id,
            pubdate=item.published,
            updateddate=item.updated,
            categories=item.tags,
        )
    return made.writeString("utf-8").encode()


def json_feed(feed: Feed) -> bytes:
    document: dict[str, Any] = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": feed.title,
        "home_page_url": feed.address("/incidents"),
        "feed_url": feed.address("/incidents.json"),
        "description": "Gaps and warnings, as the monitor saw them.",
        "language": "en",
        "items": _items(feed.entries),
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def _items(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "id": item.id,
            "url": item.url,
            "title": item.title,
            "content_text": item.text,
            "date_published": words.iso(item.published),
            "date_modified": words.iso(item.updated),
            "tags": list(item.tags),
        }
        for item in entries
    ]
