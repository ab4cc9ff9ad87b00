"""What the coordinator's reads answer, typed: needs, fits, what-ifs, hints and their days. Null: not known."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from monitor.api.typed import Document, Fresh
from swarm.wire.hints import PrefixText


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
    from_model: str | None = Field(
        description="The model that these are of; another one than `prefix` where the server changes its model",
        examples=["Llama-2-70b-hf"],
    )
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
