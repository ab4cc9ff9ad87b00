"""The HTTP API: the monitor's reads and, here, the coordinator's advice to block servers (docs/protocol.md, "Hints")."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from ninja import NinjaAPI, Router
from ninja.errors import HttpError

from coordinator import hints, leases, problems
from coordinator.models import Lease, Phase
from monitor import live
from monitor.api import router as monitor_router
from monitor.history.api import router as history_router
from swarm.wire.hints import HintAnswer, HintRequest, LeaseReply, LeaseStep

router = Router(tags=["hints"])


@router.post("/hint", response=HintAnswer, summary="Where should this server serve?")
def hint(request: HttpRequest, body: HintRequest) -> HintAnswer:
    """The question is also the heartbeat. The answer is to stay or a lease, always with a reason; the server decides."""
    answer = hints.answer(settings.SEPAL_SWARM, body, datetime.now(UTC))
    if answer.lease is not None:
        live.request_push(settings.SEPAL_SWARM)
    return answer


@router.post("/lease/{lease_id}/accept", response=LeaseReply, summary="Before unloading anything: take the lease")
def accept(request: HttpRequest, lease_id: UUID, body: LeaseStep) -> LeaseReply:
    reply = hints.accept(settings.SEPAL_SWARM, _lease_of(lease_id, body.peer), datetime.now(UTC))
    live.request_push(settings.SEPAL_SWARM)
    return reply


@router.post("/lease/{lease_id}/progress", response=LeaseReply, summary="Loading: keeps the lease open")
def progress(request: HttpRequest, lease_id: UUID, body: LeaseStep) -> LeaseReply:
    lease = _lease_of(lease_id, body.peer)
    if leases.report_progress(lease, body.progress, datetime.now(UTC)):
        live.request_push(settings.SEPAL_SWARM)
        return LeaseReply(outcome="ok", reason=lease.reason)
    return LeaseReply(outcome="stale", reason="the lease has run out or is closed")


@router.post("/lease/{lease_id}/decline", response=LeaseReply, summary="No, with the reason; costs the server nothing")
def decline(request: HttpRequest, lease_id: UUID, body: LeaseStep) -> LeaseReply:
    lease = _lease_of(lease_id, body.peer)
    closed = leases.close(lease, Phase.DECLINED, body.reason or "no reason given", datetime.now(UTC))
    live.request_push(settings.SEPAL_SWARM)
    return LeaseReply(outcome="ok" if closed else "stale", reason=lease.reason)


def _lease_of(lease_id: UUID, peer_id: str) -> Lease:
    """A lease is found only by the peer that it was given to."""
    lease = Lease.objects.filter(pk=lease_id, peer_id=peer_id).first()
    if lease is None:
        raise HttpError(404, "this peer has no lease with this id")
    return lease


api = NinjaAPI(
    title="Sepal",
    version="1",
    description="Reads of a Petals-compatible swarm, and hints for its block servers.",
    urls_namespace="api",
)
problems.install(api)
api.add_router("", monitor_router)
api.add_router("", history_router)
api.add_router("", router)
