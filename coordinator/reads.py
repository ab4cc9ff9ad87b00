"""Reads for people and scripts: what is needed, what fits, what if, which hints were given and what became of them. Doors."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from ninja import Router, Schema
from ninja.errors import HttpError
from pydantic import Field

from coordinator import fits as fitting
from coordinator import limits, outcomes
from coordinator import needed as needs
from coordinator.models import Lease
from coordinator.shown import shown
from coordinator.sight import NotSeen, promises_of, published_of
from monitor.published import Published
from swarm.snapshot import Model
from swarm.wire.hints import BlockCount, PeerIdText, PrefixText

router = Router(tags=["for people"])

LISTED_AT_MOST = 100

Precision = Literal["float32", "bfloat16", "float16", "int8", "nf4"]
Gigabytes = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Billions = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, le=10_000_000)]
Rate = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class CardDocument(Schema):
    start: int
    end: int
    blocks: str
    reason_code: str
    reason: str
    effect: str


class NeededDocument(Schema):
    prefix: str
    num_blocks: int
    summary: str
    cards: list[CardDocument]


class NeededList(Schema):
    items: list[NeededDocument]


class FitDocument(Schema):
    """`num_blocks` is null where the size of a block is not known."""

    prefix: str
    num_blocks: int | None
    model_blocks: int
    weight_bytes_per_block: float | None
    cache_bytes_per_block: float | None
    source: str
    words: str


class WhatIfDocument(Schema):
    prefix: str
    start: int | None
    end: int | None
    verdict_before: str
    verdict_after: str
    min_redundancy_before: int | None
    min_redundancy_after: int | None
    words: str


class HintDocument(Schema):
    id: UUID
    prefix: str
    peer_id: str
    start: int
    end: int
    from_span: list[int] | None
    urgency: str
    reason_code: str
    reason: str
    outcome: str
    close_reason: str
    progress: float
    plan_version: int
    expected_gain: float | None
    cost_s: float | None
    created_at: datetime
    accepted_at: datetime | None
    closed_at: datetime | None
    repaired_s: float | None
    inputs: dict[str, Any]


class DayDocument(Schema):
    day: date
    offered: int
    followed: int
    declined: int
    ignored: int
    broken_off: int
    stale: int
    told_to_stay: int
    repaired_s: float | None


class HintsDocument(Schema):
    items: list[HintDocument]
    days: list[DayDocument]


@router.get("/needed", response=NeededList, summary="Where a server of so many blocks helps most, worst model first")
def needed(request: HttpRequest, model: PrefixText | None = None, num_blocks: BlockCount = needs.USUAL_BLOCKS) -> NeededList:
    limits.count(limits.PLANS_OF_AN_ADDRESS, limits.address_of(request))
    published = _seen()
    promises = {item.prefix: promises_of(settings.SEPAL_SWARM, item.prefix) for item in published.snapshot.models}
    found = needs.needed(published, model, num_blocks, promises)
    if model is not None and not found:
        raise HttpError(404, _unknown(model))
    return NeededList(items=[needed_document(item) for item in found])


@router.get("/fits", response=FitDocument, summary="How many blocks of a model fit a card")
def fits(
    request: HttpRequest,
    model: PrefixText,
    memory_gb: Gigabytes,
    precision: Precision = "bfloat16",
    parameters_b: Billions | None = None,
    cache_tokens: Tokens = fitting.CACHE_TOKENS,
) -> FitDocument:
    """`parameters_b`: billions of parameters of the whole model, where its shape is not known here."""
    found = _model(model)
    name = found.repository or found.prefix
    result = fitting.fit(name, found.num_blocks, memory_gb, precision, parameters_b, cache_tokens)
    return FitDocument(
        prefix=model,
        num_blocks=result.num_blocks,
        model_blocks=result.model_blocks,
        weight_bytes_per_block=result.weight_bytes,
        cache_bytes_per_block=result.cache_bytes,
        source=result.source,
        words=result.words,
    )


@router.get("/what-if", response=WhatIfDocument, summary="What if a server comes, or one leaves?")
def what_if(
    request: HttpRequest,
    model: PrefixText,
    add_blocks: BlockCount | None = None,
    leaves: PeerIdText | None = None,
    throughput: Rate | None = None,
) -> WhatIfDocument:
    """`add_blocks`: a server of so many blocks comes, with `throughput` in tokens a second if that is known.
    `leaves`: this peer goes."""
    limits.count(limits.PLANS_OF_AN_ADDRESS, limits.address_of(request))
    try:
        result = needs.what_if(_model(model), add_blocks, leaves, throughput, promises_of(settings.SEPAL_SWARM, model))
    except needs.NoSuchServer as error:
        raise HttpError(404, str(error)) from error
    before, after = result.effect.before, result.effect.after
    return WhatIfDocument(
        prefix=model,
        start=result.span.start if result.span else None,
        end=result.span.end if result.span else None,
        verdict_before=before.verdict.value,
        verdict_after=after.verdict.value,
        min_redundancy_before=before.min_redundancy,
        min_redundancy_after=after.min_redundancy,
        words=result.words,
    )


@router.get("/hints", response=HintsDocument, summary="The newest hints, and what hints came to, by day")
def hints(request: HttpRequest, model: PrefixText | None = None) -> HintsDocument:
    newest = shown(Lease.objects.filter(swarm=settings.SEPAL_SWARM)).order_by("-created_at")
    newest = newest if model is None else newest.filter(prefix=model)
    days = outcomes.days(settings.SEPAL_SWARM, model, datetime.now(UTC))
    return HintsDocument(
        items=[hint_document(lease, with_inputs=False) for lease in newest[:LISTED_AT_MOST]],
        days=[DayDocument(**{name: getattr(day, name) for name in DayDocument.model_fields}) for day in days],
    )


@router.get("/hints/{hint_id}", response=HintDocument, summary="One hint: what it rests on, what else was possible")
def one_hint(request: HttpRequest, hint_id: UUID) -> HintDocument:
    lease = shown(Lease.objects.filter(swarm=settings.SEPAL_SWARM, pk=hint_id)).first()
    if lease is None:
        raise HttpError(404, "there is no such hint; hints are kept for 90 days")
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


def _seen() -> Published:
    try:
        return published_of(settings.SEPAL_SWARM)
    except NotSeen as error:
        raise HttpError(503, str(error)) from error


def _model(prefix: str) -> Model:
    found = _seen().snapshot.model(prefix)
    if found is None:
        raise HttpError(404, _unknown(prefix))
    return found


def _unknown(prefix: str) -> str:
    return f"the swarm announces no model with the prefix {prefix!r}; /api/v1/models lists those it does"
