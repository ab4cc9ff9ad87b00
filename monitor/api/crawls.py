"""The monitor's own work: each look at the swarm, what came of it, and the snapshot that it left."""

from __future__ import annotations

import json
import zlib
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router
from pydantic import Field

from monitor.api import paging, sight
from monitor.api.caching import FOREVER, note_rule
from monitor.api.problems import SNAPSHOT_FORGOTTEN, UNKNOWN_CRAWL, UNKNOWN_SNAPSHOT, Problem
from monitor.api.servers import State
from monitor.api.typed import Document, Fresh, Moment, Pair, PeerId, Prefix, SwarmName, freshness
from monitor.hiding.models import hidden_list
from monitor.hiding.rules import HiddenList, text_of
from monitor.models import Crawl, CrawlOutcome, KeptSnapshot
from monitor.privacy import without_addresses
from monitor.published import rfc3339
from swarm.wire.text import clean_text

router = Router(tags=["crawls"])

MAX_TEXT = 300
_SIZE_KNOWN = b'"size_known":'

Id = Annotated[int, Path(ge=1, le=paging.MAX_ID)]


class CrawlPart(Document):
    """One look at the swarm."""

    id: int = Field(description="Where it succeeded, also the id of its snapshot", examples=[4711], ge=1)
    swarm: str = Field(examples=["main"])
    started_at: Moment
    finished_at: Moment
    duration_seconds: float = Field(examples=[3.2], ge=0)
    outcome: Literal["succeeded", "failed", "held"] = Field(
        description="`held`: read, and not believed", examples=["succeeded"]
    )
    reason: str | None = Field(description="Why it failed or is not believed", examples=[None])
    suspicion: str | None = Field(description="The kind of doubt that held it back", examples=[None])
    confirmed: str | None = Field(description="How a doubt about it was settled", examples=[None])
    observed_at: Moment | None = Field(description="The time of its snapshot; null where it left none")
    bootstraps_up: int = Field(description="Bootstrap peers that answered", examples=[2], ge=0)
    bootstraps: int = Field(description="Bootstrap peers that there are", examples=[2], ge=0)
    keys_unread: int = Field(description="DHT keys that nobody answered for", examples=[0], ge=0)
    dropped: dict[str, int] = Field(description="Records left out, by reason", examples=[{"subkey": 1}])


class CrawlList(Fresh):
    """Newest first; kept for seven days."""

    items: list[CrawlPart]
    next: str | None = Field(description="Address of the next page; null on the last", examples=[None])


class DroppedRecord(Document):
    """A record that was left out: why a server is missing. Its words are whoever wrote it's own."""

    key: str = Field(description="Where it stood in the DHT", examples=["Llama-2-70b-hf.12"])
    subkey: str = Field(examples=["12D3KooW…"])
    reason: str = Field(description="As `dropped` counts it", examples=["subkey"])
    detail: str = Field(description="The same for people", examples=["'12D3KooW…' is no peer id"])


class CrawlDocument(CrawlPart):
    """One look at the swarm, with the records that it left out."""

    dropped_records: list[DroppedRecord] = Field(description="The first 200 of them")


class SnapshotServer(Document):
    peer_id: PeerId
    state: State = Field(examples=["online"])
    start: int = Field(examples=[0], ge=0)
    end: int = Field(examples=[40], ge=1)
    throughput_tokens_per_second: float | None = Field(description="As it said; null where it did not", examples=[310.5])
    cache_tokens_left: int | None = Field(description="Null where it did not say", examples=[1179648])
    version: str | None = Field(examples=["2.3.0"])
    using_relay: bool | None = Field(examples=[False])


class SnapshotModel(Document):
    prefix: Prefix
    repository: str | None = Field(examples=["org/Llama-2-70b-hf"])
    num_blocks: int = Field(description="See size_known", examples=[80], ge=1)
    size_known: bool | None = Field(
        description="Whether the index of models said how many blocks it has; where not, num_blocks is what was seen of it."
        " Null in snapshots from before this was kept",
        examples=[True],
    )
    verdict: Literal["complete", "thin", "broken", "unknown"] = Field(examples=["complete"])
    holes: list[Pair]
    thin: list[Pair]
    unread: list[Pair]
    blocks: list[int | None] = Field(description="Servers online on each block; null where not known", examples=[[2, 3]])
    servers: list[SnapshotServer]


class SnapshotDocument(Document):
    """A swarm at one moment. It never changes, and says nothing of the present: so it is neither fresh nor stale, and
    names no servers but by their ids."""

    snapshot_id: int = Field(examples=[4711], ge=1)
    swarm: str = Field(examples=["main"])
    observed_at: Moment
    models: list[SnapshotModel]


@router.get("/crawls", response=CrawlList, summary="Every look at the swarm, newest first")
def crawls(
    request: HttpRequest,
    response: HttpResponse,
    swarm: SwarmName = "",
    outcome: Annotated[Literal["succeeded", "failed", "held"] | None, Query(description="Only those that ended so")] = None,
    limit: paging.PageSize = paging.PAGE,
    cursor: paging.Cursor = "",
) -> dict[str, Any]:
    seen = sight.look(request, swarm)
    rows = Crawl.objects.of(seen.swarm).filter(pk__lt=paging.read_id(cursor)).order_by("-pk")
    if outcome is not None:
        rows = rows.filter(outcome=outcome)
    page, more = paging.page_of(rows.defer("dropped", "addresses")[: limit + 1], limit, lambda row: row.pk)
    hidden = hidden_list()
    items = [crawl_document(row, hidden) for row in page]
    return {"items": items, "next": paging.following(request, response, more), **freshness(seen)}


@router.get("/crawls/{crawl_id}", response=CrawlDocument, summary="One look at the swarm, with the records that it left out")
def crawl(request: HttpRequest, crawl_id: Id) -> dict[str, Any]:
    row = Crawl.objects.filter(pk=crawl_id).first()
    if row is None:
        raise Problem(
            UNKNOWN_CRAWL, f"there is no check {crawl_id}; they are kept for seven days, and /api/v1/crawls lists them"
        )
    note_rule(request, FOREVER)
    hidden = hidden_list()
    records = [{name: _printable(text, hidden) for name, text in record.items()} for record in row.dropped]
    return {**crawl_document(row, hidden), "dropped_records": records}


@router.get("/snapshots/{snapshot_id}", response=SnapshotDocument, summary="The swarm as it was seen at one moment")
def snapshot(request: HttpRequest, snapshot_id: Id) -> HttpResponse:
    """Kept for a day, and the same for ever: it may be cached without asking again."""
    kept = KeptSnapshot.objects.filter(pk=snapshot_id).first()
    if kept is None:
        if Crawl.objects.filter(pk=snapshot_id, outcome=CrawlOutcome.SUCCEEDED).exists():
            raise Problem(
                SNAPSHOT_FORGOTTEN,
                f"snapshot {snapshot_id} is older than a day; /api/v1/crawls/{snapshot_id} says what is left",
            )
        raise Problem(UNKNOWN_SNAPSHOT, f"there is no snapshot {snapshot_id}")
    note_rule(request, FOREVER)
    return HttpResponse(_as_told(zlib.decompress(kept.document)), content_type="application/json; charset=utf-8")


def _as_told(document: bytes) -> bytes:
    """Whoever was hidden since is not named in old snapshots either. What was not kept then is not known."""
    hidden = hidden_list()
    if not hidden and _SIZE_KNOWN in document:
        return document
    found = hidden.scrubbed(json.loads(document))
    for model in found["models"]:
        model.setdefault("size_known", None)
        model["repository"] = text_of(model["repository"], hidden) if model["repository"] else None
        for server in model["servers"]:
            server["version"] = text_of(server["version"], hidden) if server["version"] else None
    return json.dumps(found, separators=(",", ":"), allow_nan=False).encode()


def crawl_document(row: Crawl, hidden: HiddenList) -> dict[str, Any]:
    return {
        "id": row.pk,
        "swarm": row.swarm,
        "started_at": rfc3339(row.started_at.timestamp()),
        "finished_at": rfc3339(row.finished_at.timestamp()),
        "duration_seconds": round(row.duration_s, 3),
        "outcome": row.outcome,
        "reason": text_of(row.reason, hidden) or None,
        "suspicion": row.suspicion or None,
        "confirmed": text_of(row.confirmed, hidden) or None,
        "observed_at": rfc3339(row.observed_at.timestamp()) if row.observed_at else None,
        "bootstraps_up": sum(map(bool, row.bootstraps.values())),
        "bootstraps": len(row.bootstraps),
        "keys_unread": row.keys_unread,
        "dropped": row.dropped_counts,
    }


def _printable(text: object, hidden: HiddenList) -> str:
    """Anybody may have written it."""
    return clean_text(without_addresses(text_of(str(text), hidden)), MAX_TEXT) or ""
