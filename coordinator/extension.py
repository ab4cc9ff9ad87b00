"""Shows leases on the monitor's pages, in its JSON and metrics, without the monitor knowing of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from coordinator.effects import NOTHING
from coordinator.models import Lease, Phase
from coordinator.needed import PLENTY, USUAL_BLOCKS, needed
from coordinator.sight import promises_of
from coordinator.tallies import DecisionCollector
from monitor.extensions import Extension, Panel, register, register_panel
from monitor.published import Watch
from swarm.coverage import coverage
from swarm.wire.hints import ReasonCode

SHOWN_FOR = timedelta(minutes=15)
"""How long a closed lease stays on the page: long enough to see how a hole was repaired."""
SHOWN_AT_MOST = 50
NEEDED_SHOWN = 3

SYMBOLS = {Phase.OFFERED: "○", Phase.ACCEPTED: "◐", Phase.DONE: "✓"}


def register_leases() -> None:
    register(
        Extension(key="leases", template="coordinator/leases.html", documents=lease_documents, collector=DecisionCollector)
    )


def register_needs() -> None:
    register_panel(Panel(key="needed", template="coordinator/needed.html", items=most_needed))


def most_needed(seen: Watch) -> list[dict[str, Any]]:
    """The first few hints of the models that need them most, for the overview; none where every block has plenty."""
    if seen.published is None:
        return []
    lowest = {model.prefix: coverage(model).min_redundancy for model in seen.published.snapshot.models}
    promises = {prefix: promises_of(seen.swarm, prefix) for prefix in lowest}
    found = [item for item in needed(seen.published, None, USUAL_BLOCKS, promises) if (lowest[item.prefix] or 0) < PLENTY]
    ranked = sorted(
        (
            (turn, order, item, card)
            for order, item in enumerate(found)
            for turn, card in enumerate(item.cards)
            if card.effect != NOTHING
        ),
        key=lambda entry: (entry[3].reason_code is not ReasonCode.HOLE, entry[0], entry[1]),
    )
    return [
        {"prefix": item.prefix, "blocks": card.blocks, "reason": card.reason, "effect": card.effect}
        for _, _, item, card in ranked[:NEEDED_SHOWN]
    ]


def lease_documents(swarm: str, prefix: str) -> list[dict[str, Any]]:
    recent = Lease.objects.of_model(swarm, prefix).recent(datetime.now(UTC) - SHOWN_FOR).defer("inputs")[:SHOWN_AT_MOST]
    return [
        {
            "id": str(lease.pk),
            "peer_id": lease.peer_id,
            "start": lease.start,
            "end": lease.end,
            "blocks": lease.span.in_words(),
            "from": [lease.origin.start, lease.origin.end] if lease.origin else None,
            "from_blocks": lease.origin.in_words() if lease.origin else None,
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
        for lease in recent
    ]
