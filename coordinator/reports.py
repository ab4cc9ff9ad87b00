"""Reports of clients -> what is kept of them. One word for each address and server, its newest; of servers that the monitor
sees now, and no more witnesses than fit. What they are worth is `swarm.throughput`'s to say.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from monitor import live
from monitor.privacy import without_addresses
from monitor.queries import latest_snapshot
from monitor.rates import evidence
from monitor.rates.models import CanaryRun, Witness
from monitor.swarms import named
from swarm.wire.complaints import missing_blocks
from swarm.wire.reports import CanaryReport, ReportReply, ReportRequest, ServerReport
from swarm.wire.text import clean_text


def take(swarm: str, report: ReportRequest, asked_from: str, now: datetime) -> ReportReply:
    """`report.peer` has proved to be it; `asked_from` is a digest of its address. Nobody's report on itself counts."""
    published = latest_snapshot(swarm)
    model = published.snapshot.model(report.model) if published is not None else None
    if model is None:
        return ReportReply(counted=0)
    known = {server.peer_id for server in model.servers} - {report.peer}
    trusted = report.peer in settings.SEPAL_TRUSTED_REPORTERS
    witness = report.peer if trusted else asked_from
    counted = 0
    for item in report.servers:
        if item.peer_id in known and evidence.has_room(swarm, report.model, item.peer_id, witness, now):
            _note(swarm, report.model, item, witness, trusted, now)
            counted += 1
    canary = report.canary if trusted else None
    if canary is not None:
        _note_canary(swarm, report, canary, now)
        live.request_push(swarm)
    return ReportReply(counted=counted, canary_counted=canary is not None, look_at=_page_of(swarm, report))


def _page_of(swarm: str, report: ReportRequest) -> str | None:
    """The model's page at the first block that an error of the report misses."""
    errors = [item.last_error for item in report.servers] + ([report.canary.detail] if report.canary else [])
    missing = sorted(block for error in errors for block in missing_blocks(error))
    watched = named(swarm)
    if not missing or watched is None:
        return None
    return f"{settings.SEPAL_URL}{watched.base}/m/{report.model}#b{missing[0]}"


def _note(swarm: str, prefix: str, item: ServerReport, witness: str, trusted: bool, now: datetime) -> None:
    Witness.objects.update_or_create(
        swarm=swarm,
        prefix=prefix,
        peer_id=item.peer_id,
        witness=witness,
        defaults={
            "trusted": trusted,
            "at": now,
            "tokens_per_s": item.tokens_per_s,
            "requests": item.requests,
            "failures": item.failures,
            "last_error": clean_text(without_addresses(item.last_error), 200) or "",
        },
    )


def _note_canary(swarm: str, report: ReportRequest, canary: CanaryReport, now: datetime) -> None:
    CanaryRun.objects.create(
        swarm=swarm,
        prefix=report.model,
        reporter=report.peer,
        at=now,
        outcome=canary.outcome,
        trusted_by=canary.trusted_by,
        detail=clean_text(without_addresses(canary.detail), 300) or "",
        peers=list(canary.servers),
        seconds=canary.seconds,
    )
