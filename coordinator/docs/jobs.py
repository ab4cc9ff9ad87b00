"""Which call is for which job, and the first three lines to type. A job whose call this site does not have is left out."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.urls import Resolver404, resolve


@dataclass(frozen=True, slots=True)
class Job:
    """`path` may hold a model's prefix as MODEL."""

    name: str
    path: str
    words: str


JOBS = (
    Job("Can a model be used?", "/api/v1/models/MODEL", "One model: the verdict in a sentence, missing blocks, every server."),
    Job("A status page's reader", "/api/v2/summary.json", "The shape that readers of Statuspage know."),
    Job("A badge in a README", "/badge/MODEL.svg", "A picture with one word; .json for shields."),
    Job("An alert", "/incidents.atom", "Feed of incidents; each has one entry, which changes when it ends."),
    Job("A bot that reacts at once", "/api/v1/events", "Server-sent events: snapshots, blocks, incidents. curl -N shows them."),
    Job("A dashboard", "/metrics", "Prometheus; a few hundred series, whatever the number of servers."),
    Job(
        "A server that looks for work",
        "/api/v1/hint",
        "POST: where should I serve? Signed, it reserves the span (docs/protocol.md).",
    ),
    Job(
        "A person with a card", "/api/v1/needed?num_blocks=8", "Where so many blocks help most, with the reason and the effect."
    ),
    Job(
        "Am I reachable?",
        "/api/v1/is_reachable/PEER",
        "Dials the peer at the addresses that the swarm knows. What Petals servers ask.",
    ),
    Job("A script written for health.petals.dev", "/api/v1/state", "The same shape, without addresses."),
    Job(
        "What happened last month", "/api/v1/models/MODEL/history", "Ninety days by the minute: watched, broken, thin, unknown."
    ),
    Job("Research", "/exports/", "A file a day with everything that was seen; nobody needs to scrape."),
)


def offered(exists: Callable[[str], bool]) -> tuple[Job, ...]:
    return tuple(job for job in JOBS if exists(job.path))


def is_here(path: str) -> bool:
    try:
        resolve(urlsplit(path).path.replace("MODEL", "any-model").replace("PEER", "any"))
    except Resolver404:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Line:
    """A command that runs as it stands, and what it shows."""

    words: str
    command: str


def first_lines(site: str) -> tuple[Line, ...]:
    return (
        Line(
            "Every model, worst first: can it run, since when, what is missing.", f"curl -s {_quoted(site, '/api/v1/models')}"
        ),
        Line("Where a server of 8 blocks helps most.", f"curl -s {_quoted(site, '/api/v1/needed?num_blocks=8')}"),
        Line("What went wrong lately.", f"curl -s {_quoted(site, '/api/v1/incidents?limit=5')}"),
    )


def cached_lines(site: str) -> tuple[Line, ...]:
    """Asking again for what has not changed: the second line sends the ETag back, and nothing travels."""
    where = _quoted(site, "/api/v1/models")
    return (
        Line("The headers of an answer.", f"curl -s -D - -o /dev/null {where}"),
        Line(
            "The same question with the ETag of the answer before: 304, and no body, until the next check.",
            f"""curl -s -o /dev/null -w '%{{http_code}}\\n' -H "If-None-Match: $(curl -s -D - -o /dev/null {where} """
            f"""| tr -d '\\r' | sed -n 's/^[Ee][Tt]ag: //p')" {where}""",
        ),
    )


def _quoted(site: str, path: str) -> str:
    return shlex.quote(f"{site}{path}")
