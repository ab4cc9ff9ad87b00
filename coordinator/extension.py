"""Shows leases on the monitor's pages, in its JSON and metrics, and the chat page in its navigation; the monitor knows of
neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from coordinator.effects import NOTHING
from coordinator.models import Lease, Phase
from coordinator.needed import PLENTY, USUAL_BLOCKS, needed
from coordinator.shown import shown
from coordinator.sight import prospects_of_all
from coordinator.tallies import DecisionCollector
from monitor.extensions import Extension, Link, Panel, register, register_link, register_loading, register_panel
from monitor.published import Loading, Standing, Watch, standings
from swarm.coverage import Coverage, at_least_words, coverage
from swarm.wire.hints import ReasonCode
from swarm.wire.spans import in_words

SHOWN_FOR = timedelta(minutes=15)
"""How long a closed lease stays on the page: long enough to see how a hole was repaired."""
SHOWN_AT_MOST = 50
NEEDED_SHOWN = 3

SYMBOLS = {Phase.OFFERED: "○", Phase.ACCEPTED: "◐", Phase.DONE: "✓"}


class LeaseOfModel(BaseModel):
    """A server's promise, or the offer of one, to serve a span."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="For /api/v1/hints/ID", examples=["8c1b7a52-3c70-4d0a-9be6-0f2b61a0b4a1"])
    peer_id: str = Field(examples=["12D3KooWKnDdG3iXw9eTFijk3EWSunZcFi54Zka4wmtqtt6rPxc8"])
    model: str = Field(description="The model that the blocks are of", examples=["tiny-hf"])
    start: int = Field(examples=[12], ge=0)
    end: int = Field(examples=[18], ge=1)
    blocks: str = Field(description="The same for people", examples=["blocks 12–17"])
    from_: list[int] | None = Field(
        alias="from", description="What the server served before; null for nothing", examples=[[0, 6]]
    )
    from_blocks: str | None = Field(examples=["blocks 0–5"])
    from_model: str | None = Field(
        description="The model that these are of; another one than `model` where the server changes its model",
        examples=["tiny-hf"],
    )
    phase: str = Field(
        description="offered or accepted while it is open; then done, declined, expired or stale", examples=["accepted"]
    )
    symbol: str = Field(description="For pages", examples=["◐"])
    progress: float = Field(description="Share of bytes loaded, 0 to 1", examples=[0.5], ge=0, le=1)
    percent: int = Field(examples=[50], ge=0, le=100)
    urgency: str = Field(examples=["hole"])
    reason_code: str = Field(examples=["hole"])
    reason: str = Field(examples=["blocks 12–17 have no server"])
    plan_version: int | None = Field(examples=[7])
    expected_gain: float | None = Field(
        description="Share of the swarm's possible throughput; null where the planner does not say", examples=[None]
    )
    cost_s: float | None = Field(
        description="Seconds for which the server serves nothing; null where not known", examples=[120.0]
    )
    outcome: str = Field(description="What became of it; `open` until then", examples=["open"])
    created_at: datetime = Field(examples=["2026-09-21T14:13:20Z"])
    closed_at: datetime | None = Field(examples=[None])
    close_reason: str = Field(examples=[""])


def register_leases() -> None:
    register(
        Extension(
            key="leases",
            template="coordinator/leases.html",
            documents=lease_documents,
            collector=DecisionCollector,
            item=LeaseOfModel,
            about="Hints given to servers lately, newest first: leases that are open, and those closed in the last 15 minutes",
        )
    )


def register_progress() -> None:
    register_loading(loading)


def loading(swarm: str) -> dict[tuple[str, str], Loading]:
    """What servers that follow a hint say of their loading."""
    rows = Lease.objects.filter(swarm=swarm, phase=Phase.ACCEPTED, accepted_at__isnull=False)
    told = rows.values_list("prefix", "peer_id", "progress", "accepted_at")
    return {(prefix, peer_id): Loading(share, at.timestamp()) for prefix, peer_id, share, at in told if at is not None}


def register_needs() -> None:
    register_panel(Panel(key="needed", template="coordinator/needed.html", items=most_needed))


def most_needed(seen: Watch) -> list[dict[str, Any]]:
    """The first few hints of the models that need them most, for the overview; and in words what is not known, or that nothing
    is missing."""
    if seen.published is None or not seen.sees or not seen.published.snapshot.models:
        return []
    lowest = {model.prefix: coverage(model).min_redundancy for model in seen.published.snapshot.models}
    prospects = prospects_of_all(seen.published)
    found = [item for item in needed(seen.published, None, USUAL_BLOCKS, prospects) if (lowest[item.prefix] or 0) < PLENTY]
    unknown = [item for item in standings(seen.published) if item.coverage.unseen]
    ranked = sorted(
        (
            (turn, order, item, card)
            for order, item in enumerate(found)
            for turn, card in enumerate(item.cards)
            if card.effect != NOTHING and card.reason_code is not ReasonCode.BLIND
        ),
        key=lambda entry: (entry[3].reason_code is not ReasonCode.HOLE, entry[0], entry[1]),
    )
    shown_cards = [
        {"prefix": item.prefix, "blocks": card.blocks, "reason": card.reason, "effect": card.effect}
        for _, _, item, card in ranked[:NEEDED_SHOWN]
    ]
    if unknown:
        return [*shown_cards, {"said": f"Not all of it is known: {_unknown(unknown)}."}]
    if not found:
        return [{"said": "Nothing is missing: every block has six servers or more.", "faster": True}]
    return shown_cards or [{"said": "Nothing more helps now: what is missing is on its way."}]


def _unknown(items: list[Standing]) -> str:
    """`of tiny-hf blocks 0–3 could not be read`, for each model."""
    return "; ".join(f"of {item.model.prefix} {_unseen(item.coverage)}" for item in items)


def _unseen(covered: Coverage) -> str:
    return f"{in_words(covered.unread)} could not be read" if covered.unread else at_least_words(len(covered.blocks))


def register_chat() -> None:
    register_link(Link("/chat", "Chat"))


def lease_documents(swarm: str, prefixes: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Hints to blocks of each model, and those by which a server leaves it for another one. One query."""
    recent = Lease.objects.touching(swarm, *prefixes).recent(datetime.now(UTC) - SHOWN_FOR).defer("inputs")
    found: dict[str, list[dict[str, Any]]] = {prefix: [] for prefix in prefixes}
    for lease in shown(recent):
        touched = [found[prefix] for prefix in {lease.prefix, lease.origin_prefix} if prefix in found]
        room = [listed for listed in touched if len(listed) < SHOWN_AT_MOST]
        if room:
            document = _document(lease)
            for listed in room:
                listed.append(document)
    return found


def _document(lease: Lease) -> dict[str, Any]:
    return {
        "id": str(lease.pk),
        "peer_id": lease.peer_id,
        "model": lease.prefix,
        "start": lease.start,
        "end": lease.end,
        "blocks": lease.goal_words,
        "from": [lease.origin.start, lease.origin.end] if lease.origin else None,
        "from_blocks": lease.origin_words or None,
        "from_model": lease.from_model,
        "phase": lease.phase,
        "symbol": SYMBOLS.get(Phase(lease.phase), "–"),
        "progress": lease.progress,
        "percent": round(100 * lease.progress),
        "urgency": lease.urgency,
        "reason_code": lease.reason_code,
        "reason": lease.reason,
        "plan_version": lease.plan_version,
        "expected_gain": lease.expected_gain,
        "cost_s": lease.cost_s,
        "outcome": lease.outcome,
        "created_at": lease.created_at,
        "closed_at": lease.closed_at,
        "close_reason": lease.close_reason,
    }
