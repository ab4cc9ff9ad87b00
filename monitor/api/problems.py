"""Everything that can go wrong under /api/, as data: what it means and what to do. An answer that is an error is one of these.

`type` of a problem document (RFC 9457) is `/docs/errors/SLUG`, the page that shows its entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import JsonResponse

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """`title` is what the document says, `remedy` what the caller can do."""

    slug: str
    status: int
    title: str
    remedy: str

    @property
    def url(self) -> str:
        return f"/docs/errors/{self.slug}"


NO_SUCH_ADDRESS = Kind(
    "no-such-address", 404, "There is nothing at this address", "GET /api/v1/openapi.json lists every address there is."
)
UNKNOWN_SWARM = Kind("unknown-swarm", 404, "This swarm is not watched here", "GET /api/v1/swarms lists those that are.")
UNKNOWN_MODEL = Kind(
    "unknown-model",
    404,
    "The swarm announces no such model",
    "GET /api/v1/models lists those it does. Models are named by their DHT prefix, not by their repository.",
)
UNKNOWN_SERVER = Kind(
    "unknown-server",
    404,
    "The monitor does not know this server",
    "A server appears with the first check after it announces itself. One that left is listed for an hour more.",
)
UNKNOWN_INCIDENT = Kind("unknown-incident", 404, "There is no such incident", "GET /api/v1/incidents lists those there are.")
UNKNOWN_CRAWL = Kind(
    "unknown-crawl", 404, "There is no such check", "GET /api/v1/crawls lists those that are kept: seven days of them."
)
UNKNOWN_SNAPSHOT = Kind(
    "unknown-snapshot", 404, "There has been no such snapshot", "Any answer about a swarm names its own as `snapshot_id`."
)
UNKNOWN_HINT = Kind(
    "unknown-hint", 404, "There is no such hint or lease", "Hints are kept for 90 days. GET /api/v1/hints lists them."
)
UNKNOWN_PAGE = Kind(
    "unknown-page", 404, "This list has no such page", "Begin again without `cursor`: it is only ever what stands in `next`."
)
METHOD_NOT_ALLOWED = Kind(
    "method-not-allowed", 405, "This address does not take this method", "The header Allow lists the methods that it takes."
)
SNAPSHOT_FORGOTTEN = Kind(
    "snapshot-forgotten",
    410,
    "This snapshot is no longer kept",
    "Snapshots are kept for a day. GET /api/v1/models/PREFIX/history has ninety days in minutes.",
)
TOO_LONG = Kind("too-long", 413, "The request is too long", "Nothing that is read here is longer than 16 KiB.")
BAD_REQUEST = Kind("bad-request", 400, "The request cannot be read", "Check the address, the host name and the headers.")
UNSIGNED = Kind(
    "unsigned",
    401,
    "The request is not signed by the peer that it names",
    "Sign it with the peer's key and the nonce of this answer (docs/protocol.md, Hints).",
)
INVALID = Kind(
    "invalid-request", 422, "A parameter or the body is not valid", "`errors` says which one, and what would be right."
)
TOO_MANY = Kind(
    "too-many-requests",
    429,
    "Too many requests",
    "Wait for as many seconds as Retry-After says. Keep answers while they are fresh.",
)
BROKEN = Kind("broken", 500, "Something broke here", "This is our fault, and it is in our log. Trying again may help.")
NOT_SEEN = Kind(
    "not-seen",
    503,
    "The monitor cannot see the swarm",
    "Nothing is advised on old sight. The answer of /api/v1/models says why; ask again after Retry-After.",
)
NOT_CHECKED = Kind(
    "not-checked",
    503,
    "The peer could not be checked",
    "This says nothing about the peer: our own crawl worker, queue or swarm does not answer. Ask again after Retry-After.",
)
BUSY = Kind(
    "busy",
    503,
    "More servers ask than are answered at once",
    "Ask again after Retry-After, and some seconds later than that, other ones each time: the others wait for the same moment.",
)
UNAVAILABLE = Kind(
    "unavailable", 503, "A part of this site is down", "Ask again after Retry-After. /readyz says which part it is."
)

CATALOGUE = (
    BAD_REQUEST, UNSIGNED, NO_SUCH_ADDRESS, UNKNOWN_SWARM, UNKNOWN_MODEL, UNKNOWN_SERVER, UNKNOWN_INCIDENT, UNKNOWN_CRAWL,
    UNKNOWN_SNAPSHOT, UNKNOWN_HINT, UNKNOWN_PAGE, METHOD_NOT_ALLOWED, SNAPSHOT_FORGOTTEN, TOO_LONG, INVALID, TOO_MANY, BROKEN,
    NOT_SEEN, NOT_CHECKED, BUSY, UNAVAILABLE,
)  # fmt: skip
"""In the order of their status: what /docs/errors lists."""

_BY_STATUS = {
    400: BAD_REQUEST,
    401: UNSIGNED,
    404: NO_SUCH_ADDRESS,
    405: METHOD_NOT_ALLOWED,
    410: SNAPSHOT_FORGOTTEN,
    413: TOO_LONG,
}
_BY_STATUS |= {422: INVALID, 429: TOO_MANY, 503: UNAVAILABLE}

RETRY_AFTER_S = 30
"""With each 503: about when the next check is due."""


@dataclass
class Problem(Exception):
    """Raised by a door; `members` are further fields of the document."""

    kind: Kind
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.slug}: {self.detail}"

    def response(self) -> JsonResponse:
        document = {"type": self.kind.url, "title": self.kind.title, "status": self.kind.status, "detail": self.detail}
        response = JsonResponse({**document, **self.members}, status=self.kind.status, content_type=MEDIA_TYPE)
        if self.kind.status == 503:
            response["Retry-After"] = str(RETRY_AFTER_S)
        for name, value in self.headers.items():
            response[name] = value
        response["Cache-Control"] = "no-store"
        return response


def of_status(status: int) -> Kind:
    """The entry for an error that came without one: from Django itself, or from below."""
    return _BY_STATUS.get(status, BAD_REQUEST if status < 500 else BROKEN)
