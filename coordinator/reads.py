"""Reads for people and scripts: what is needed, what fits, what if, which hints were given and what became of them. Doors."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from coordinator import fits as fitting
from coordinator import limits, outcomes
from coordinator import needed as needs
from coordinator.models import Lease
from coordinator.shown import shown
from coordinator.sight import believed, promises_of
from monitor.api import paging
from monitor.api.problems import UNKNOWN_HINT, UNKNOWN_SERVER, Problem
from monitor.api.sight import look, published_model
from monitor.api.typed import Document, Fresh, SwarmName, freshness
from monitor.published import Published, Watch
from swarm.wire.hints import BlockCount, PeerIdText, PrefixText
from swarm.wire.keys import MAX_BLOCKS

router = Router(tags=["for people"])

Model = Annotated[PrefixText, Query(description="A model, by its DHT prefix")]
AnyModel = Annotated[PrefixText | None, Query(description="Only this model, by its DHT prefix")]
ServerSize = Annotated[int, Query(ge=1, le=MAX_BLOCKS, description="How many blocks that server holds")]
Precision = Literal["float32", "bfloat16", "float16", "int8", "nf4"]
Gigabytes = Annotated[float, Query(gt=0, le=10_000, allow_inf_nan=False, description="Memory of the card, in GB")]
Tokens = Annotated[int, Query(ge=0, le=10_000_000, description="Attention cache of all sessions together, in each block")]
Billions = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class CardDocument(Document):
    """A span worth serving, by the planner that also gives the hints."""

    start: int = Field(description="First block", examples=[12], ge=0)
    end: int = Field(description="One more than the last block", examples=[20], ge=1)
    blocks: str = Field(description="The same for people", examples=["blocks 12–19"])
    reason_code: str = Field(examples=["hole"])
    reason: str = Field(examples=["blocks 12–17 have no server"])
    effect: str = Field(description="What it would change", examples=["the model runs again; lowest redundancy 0 → 1"])


class NeededDocument(Document):
    prefix: PrefixText = Field(description="The model's DHT prefix", examples=["Llama-2-70b-hf"])
    num_blocks: int = Field(description="The size of server that the cards are for", examples=[8], ge=1)
    summary: str = Field(description="The model's need in one sentence", examples=["cannot run: blocks 12–17 have no server"])
    cards: list[CardDocument] = Field(
        description="Best first, three at most; the second is what is best once the first is taken"
    )


class NeededList(Fresh):
    """Models worst first: what has no server comes before what has one."""

    swarm: str = Field(examples=["main"])
    items: list[NeededDocument]


class FitDocument(Fresh):
    """How many blocks of a model fit a card, and how far that may be believed."""

    prefix: PrefixText = Field(examples=["Llama-2-70b-hf"])
    num_blocks: int | None = Field(
        description="Null where the size of a block is not known; 0 where not even one fits", examples=[11]
    )
    model_blocks: int = Field(description="Blocks of the whole model", examples=[80], ge=1)
    weight_bytes_per_block: float | None = Field(description="Null where not known", examples=[1.7e9])
    cache_bytes_per_block: float | None = Field(description="Null where not known: then it is not counted", examples=[1.7e7])
    source: str = Field(
        description="What the figures rest on; empty where nothing is known", examples=["this model's known shape"]
    )
    words: str = Field(examples=["Fits about 11 blocks: 18.9 GB of 24 GB; each takes 1.7 GB of weights and 17 MB of cache."])


class WhatIfDocument(Fresh):
    """A model now, and as it would be."""

    prefix: PrefixText = Field(examples=["Llama-2-70b-hf"])
    start: int | None = Field(description="Where the added server would go; null where none is added", examples=[12])
    end: int | None = Field(examples=[20])
    verdict_before: str = Field(examples=["broken"])
    verdict_after: str = Field(examples=["thin"])
    min_redundancy_before: int | None = Field(description="Null where not known", examples=[0])
    min_redundancy_after: int | None = Field(description="Null where not known", examples=[1])
    words: str = Field(examples=["With a server of 8 blocks on blocks 12–19: the model runs again"])


class HintDocument(Document):
    """A hint: who was told to serve what, why, and what came of it."""

    id: UUID = Field(examples=["8c1b7a52-3c70-4d0a-9be6-0f2b61a0b4a1"])
    prefix: str = Field(examples=["Llama-2-70b-hf"])
    peer_id: str = Field(examples=["12D3KooWKnDdG3iXw9eTFijk3EWSunZcFi54Zka4wmtqtt6rPxc8"])
    start: int = Field(examples=[12], ge=0)
    end: int = Field(examples=[18], ge=1)
    from_span: list[int] | None = Field(description="What it served before; null for nothing", examples=[[0, 6]])
    urgency: str = Field(examples=["hole"])
    reason_code: str = Field(examples=["hole"])
    reason: str = Field(examples=["blocks 12–17 have no server"])
    outcome: str = Field(description="`open` until it is closed", examples=["followed"])
    close_reason: str = Field(examples=["serves it"])
    progress: float = Field(description="Share of bytes loaded, 0 to 1", examples=[1.0])
    plan_version: int = Field(examples=[7])
    expected_gain: float | None = Field(
        description="Share of the swarm's possible throughput; null where not said", examples=[None]
    )
    cost_s: float | None = Field(
        description="Seconds for which the server serves nothing; null where not known", examples=[120.0]
    )
    created_at: datetime = Field(examples=["2026-09-21T14:13:20Z"])
    accepted_at: datetime | None = Field(examples=["2026-09-21T14:13:22Z"])
    closed_at: datetime | None = Field(examples=["2026-09-21T14:15:02Z"])
    repaired_s: float | None = Field(
        description="From the hint to the blocks being served; null where it did not come to that", examples=[102.0]
    )
    inputs: dict[str, Any] = Field(description="What it rests on; in lists left empty", examples=[{}])


class DayDocument(Document):
    """What the hints of a day came to."""

    day: date = Field(examples=["2026-09-21"])
    offered: int = Field(examples=[12], ge=0)
    followed: int = Field(examples=[9], ge=0)
    declined: int = Field(examples=[1], ge=0)
    ignored: int = Field(examples=[1], ge=0)
    broken_off: int = Field(examples=[0], ge=0)
    stale: int = Field(examples=[1], ge=0)
    told_to_stay: int = Field(examples=[2840], ge=0)
    repaired_s: float | None = Field(
        description="Seconds from hint to service, the mean; null where there was none", examples=[95.0]
    )


class HintsDocument(Document):
    """The newest hints first, and what hints came to, by day."""

    items: list[HintDocument]
    days: list[DayDocument]
    next: str | None = Field(description="Address of the next page of `items`; null on the last", examples=[None])


@router.get("/needed", response=NeededList, summary="Where a server of so many blocks helps most, worst model first")
def needed(
    request: HttpRequest,
    model: AnyModel = None,
    num_blocks: ServerSize = needs.USUAL_BLOCKS,
    swarm: SwarmName = "",
) -> dict[str, Any]:
    seen, published = _seen(request, swarm)
    promises = {item.prefix: promises_of(seen.swarm, item.prefix) for item in published.snapshot.models}
    found = needs.needed(published, model, num_blocks, promises)
    if model is not None and not found:
        published_model(seen, model)
    return {"swarm": seen.swarm, "items": [needed_document(item) for item in found], **freshness(seen)}


@router.get("/fits", response=FitDocument, summary="How many blocks of a model fit a card")
def fits(
    request: HttpRequest,
    model: Model,
    memory_gb: Gigabytes,
    precision: Precision = "bfloat16",
    parameters_b: Annotated[Billions | None, Query(description="Parameters of the whole model, in billions")] = None,
    cache_tokens: Tokens = fitting.CACHE_TOKENS,
    swarm: SwarmName = "",
) -> dict[str, Any]:
    """`parameters_b`: billions of parameters of the whole model, where its shape is not known here."""
    seen, _ = _seen(request, swarm, plans=False)
    _, found = published_model(seen, model)
    result = fitting.fit(found.repository or found.prefix, found.num_blocks, memory_gb, precision, parameters_b, cache_tokens)
    return {
        "prefix": model,
        "num_blocks": result.num_blocks,
        "model_blocks": result.model_blocks,
        "weight_bytes_per_block": result.weight_bytes,
        "cache_bytes_per_block": result.cache_bytes,
        "source": result.source,
        "words": result.words,
        **freshness(seen),
    }


@router.get("/what-if", response=WhatIfDocument, summary="What if a server comes, or one leaves?")
def what_if(
    request: HttpRequest,
    model: Model,
    add_blocks: Annotated[BlockCount | None, Query(description="A server of so many blocks comes")] = None,
    leaves: Annotated[PeerIdText | None, Query(description="This peer goes")] = None,
    throughput: Annotated[Rate | None, Query(description="Of the server that comes, in tokens a second")] = None,
    swarm: SwarmName = "",
) -> dict[str, Any]:
    """The server that comes is put where the planner would put it; `throughput` is its tokens a second, if that is known."""
    seen, _ = _seen(request, swarm)
    _, found = published_model(seen, model)
    try:
        result = needs.what_if(found, add_blocks, leaves, throughput, promises_of(seen.swarm, model))
    except needs.NoSuchServer as error:
        raise Problem(UNKNOWN_SERVER, str(error)) from error
    before, after = result.effect.before, result.effect.after
    return {
        "prefix": model,
        "start": result.span.start if result.span else None,
        "end": result.span.end if result.span else None,
        "verdict_before": before.verdict.value,
        "verdict_after": after.verdict.value,
        "min_redundancy_before": before.min_redundancy,
        "min_redundancy_after": after.min_redundancy,
        "words": result.words,
        **freshness(seen),
    }


@router.get("/hints", response=HintsDocument, summary="The newest hints, and what hints came to, by day")
def hints(
    request: HttpRequest,
    response: HttpResponse,
    model: AnyModel = None,
    limit: paging.PageSize = paging.PAGE,
    cursor: paging.Cursor = "",
    swarm: SwarmName = "",
) -> dict[str, Any]:
    of = look(request, swarm).swarm
    newest = shown(Lease.objects.filter(swarm=of)).order_by("-created_at", "-id")
    newest = newest if model is None else newest.filter(prefix=model)
    if cursor:
        created_at, lease_id = _hint_key(cursor)
        newest = newest.filter(Q(created_at__lt=created_at) | Q(created_at=created_at, id__lt=lease_id))
    page, more = paging.page_of(newest[: limit + 1], limit, lambda lease: [lease.created_at.isoformat(), str(lease.pk)])
    return {
        "items": [hint_document(lease, with_inputs=False) for lease in page],
        "days": [_day_document(day) for day in outcomes.days(of, model, datetime.now(UTC))],
        "next": paging.following(request, response, more),
    }


@router.get("/hints/{hint_id}", response=HintDocument, summary="One hint: what it rests on, what else was possible")
def one_hint(request: HttpRequest, hint_id: UUID, swarm: SwarmName = "") -> HintDocument:
    lease = shown(Lease.objects.filter(swarm=look(request, swarm).swarm, pk=hint_id)).first()
    if lease is None:
        raise Problem(UNKNOWN_HINT, "there is no such hint; hints are kept for 90 days")
    return hint_document(lease, with_inputs=True)


def needed_document(item: needs.Needed) -> NeededDocument:
    cards = [
        CardDocument(
            start=card.span.start,
            end=card.span.end,
            blocks=card.blocks,
            reason_code=card.reason_code,
            reason=card.reason,
            effect=card.effect,
        )
        for card in item.cards
    ]
    return NeededDocument(prefix=item.prefix, num_blocks=item.num_blocks, summary=item.summary, cards=cards)


def hint_document(lease: Lease, with_inputs: bool) -> HintDocument:
    """Without `inputs` in lists: they are long."""
    names = set(HintDocument.model_fields) - {"from_span", "inputs"}
    return HintDocument(
        **{name: getattr(lease, name) for name in names},
        from_span=[lease.origin.start, lease.origin.end] if lease.origin else None,
        inputs=lease.inputs if with_inputs else {},
    )


def _day_document(day: outcomes.Day) -> dict[str, Any]:
    return {name: getattr(day, name) for name in DayDocument.model_fields}


def _hint_key(cursor: str) -> tuple[datetime, UUID]:
    created_at, lease_id = paging.read_words(cursor, 2)
    try:
        return datetime.fromisoformat(created_at), UUID(lease_id)
    except ValueError:
        return paging.refuse()


def _seen(request: HttpRequest, swarm: str, plans: bool = True) -> tuple[Watch, Published]:
    """What may be reasoned on now; NotSeen where that is nothing."""
    if plans:
        limits.count(limits.PLANS_OF_AN_ADDRESS, limits.address_of(request))
    seen = look(request, swarm)
    return seen, believed(seen)
