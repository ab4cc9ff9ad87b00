"""What follows at once from a ruling, and how it is written down. Whoever changes rulings comes through here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.db import transaction

from coordinator import leases
from coordinator.desk.models import Kind, Ruling
from coordinator.hints import QUARANTINED_SINCE
from coordinator.models import Lease, Phase
from monitor import live
from monitor.swarms import configured


def take_effect(ruling: Ruling, now: datetime) -> None:
    """Open hints of a quarantined server are taken back, and pages that are open are told."""
    if ruling.kind == Kind.QUARANTINE and ruling.starts_at <= now < ruling.ends_at:
        for lease in Lease.objects.open().filter(peer_id=ruling.subject, **({"swarm": ruling.swarm} if ruling.swarm else {})):
            leases.close(lease, Phase.STALE, QUARANTINED_SINCE, now)
    for swarm in configured():
        if ruling.swarm in ("", swarm.name):
            # Once it is committed: the worker that renders the page must see it.
            transaction.on_commit(lambda name=swarm.name: live.request_push(name))  # type: ignore[misc]


def end(ruling: Ruling, user: Any, now: datetime) -> bool:
    """False where it had ended already. One that has not begun yet never will."""
    if ruling.ends_at <= now:
        return False
    ruling.ends_at = max(now, ruling.starts_at)
    ruling.save(update_fields=["ends_at"])
    write_down(user, ruling, CHANGE, "Ended.")
    take_effect(ruling, now)
    return True


def write_down(user: Any, subject: Any, what: int, words: str) -> None:
    LogEntry.objects.log_actions(user.pk, [subject], what, words, single_object=True)


def now() -> datetime:
    return datetime.now(UTC)


__all__ = ["ADDITION", "CHANGE", "end", "now", "take_effect", "write_down"]
