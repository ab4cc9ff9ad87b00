"""For how long an answer counts, by which tag it is known again, and whether the caller has it. Pure but for the request.

A door notes on its request which snapshot the answer rests on; the middleware turns that into headers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from monitor.published import Watch

_NOTED = "sepal.noted"


@dataclass(frozen=True, slots=True)
class Rule:
    """`header` is for caches elsewhere; `kept_s` is how long this process may give out the same bytes, 0 for never."""

    header: str
    kept_s: float


LIVE = Rule("public, max-age=5, stale-while-revalidate=30, stale-if-error=300", 5.0)
OF_SNAPSHOT = Rule(LIVE.header, 60.0)
"""What changes with the snapshot only: made once for each, whoever asks. Leases and incidents come and go between two."""
SLOW = Rule("public, max-age=60, stale-while-revalidate=300, stale-if-error=3600", 60.0)
"""Days change once a minute at most."""
SCRAPE = Rule("no-cache", 1.0)
"""Of what also counts without a crawl: whoever scrapes in the same second is told the same."""
FOREVER = Rule("public, max-age=31536000, immutable", 3_600.0)
PRIVATE = Rule("private, no-store", 0.0)
"""What depends on who asks, or on this very moment."""


@dataclass(frozen=True, slots=True)
class Noted:
    """`version` changes whenever the swarm is to be shown differently: a new check, a change of belief. Empty: no swarm."""

    rule: Rule
    swarm: str = ""
    version: str = ""
    snapshot_id: int | None = None
    stale: bool = False
    modified: float | None = None


def version_of(seen: Watch) -> str:
    """Sentences of a stale snapshot say its age in minutes, so that it changes with them."""
    snapshot = seen.published.snapshot_id if seen.published else 0
    belief = "fresh" if seen.sees else f"stale{int(seen.published.age_s() // 60)}" if seen.published else "blind"
    return f"{snapshot}.{seen.last_crawl_id}.{belief}.{seen.ruled}"


def note(request: HttpRequest, seen: Watch, rule: Rule = LIVE) -> None:
    published = seen.published
    looked = published.snapshot.at if published else seen.last_crawl.finished_at if seen.last_crawl else None
    identity = published.snapshot_id if published else None
    request.META[_NOTED] = Noted(rule, seen.swarm, version_of(seen), identity, not seen.sees, looked)


def note_rule(request: HttpRequest, rule: Rule) -> None:
    """For what rests on no snapshot, or another rule for what does."""
    before: Noted | None = request.META.get(_NOTED)
    if before is None:
        request.META[_NOTED] = Noted(rule)
    else:
        request.META[_NOTED] = Noted(rule, before.swarm, before.version, before.snapshot_id, before.stale, before.modified)


def noted(request: HttpRequest) -> Noted | None:
    found: Any = request.META.get(_NOTED)
    return found if isinstance(found, Noted) else None


def etag_of(about: Noted, body: bytes, media_type: str) -> str:
    """The snapshot's id, whether it is believed, and a digest: leases and incidents change between two snapshots."""
    digest = hashlib.blake2b(body, digest_size=6, key=media_type.encode()[:64]).hexdigest()
    belief = "s" if about.stale else "f"
    return f'"{about.snapshot_id or 0}{belief}-{digest}"'


def matches(if_none_match: str, etag: str) -> bool:
    """RFC 9110's weak comparison, as GET and HEAD use it."""
    asked = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in asked or etag.removeprefix("W/") in asked
