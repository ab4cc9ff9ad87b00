"""Reads for people and scripts: what is needed, what fits, what if, which hints were given and what became of them. Doors."""

from __future__ import annotations

from datetime import UTC, datetime
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
from coordinator.sight import believed, prospects_of, prospects_of_all
from coordinator.typed import (
    CardDocument,
    DayDocument,
    FitDocument,
    HintDocument,
    HintsDocument,
    NeededDocument,
    NeededList,
    WhatIfDocument,
)
from monitor.api import paging
from monitor.api.problems import UNKNOWN_HINT, UNKNOWN_SERVER, Problem
from monitor.api.sight import look, published_model
from monitor.api.typed import SwarmName, freshness
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


@router.get("/needed", response=NeededList, summary="Where a server of so many blocks helps most, worst model first")
def needed(
    request: HttpRequest,
    model: AnyModel = None,
    num_blocks: ServerSize = needs.USUAL_BLOCKS,
    swarm: SwarmName = "",
) -> dict[str, Any]:
    seen, published = _seen(request, swarm)
    prospects = prospects_of_all(published)
    found = needs.needed(published, model, num_blocks, prospects)
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
    seen, published = _seen(request, swarm)
    _, found = published_model(seen, model)
    try:
        result = needs.what_if(published, found, add_blocks, leaves, throughput, prospects_of(published, found))
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
    newest = newest if model is None else newest.filter(Q(prefix=model) | Q(origin_prefix=model))
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
