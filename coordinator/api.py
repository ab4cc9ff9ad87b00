"""The HTTP API: the monitor's reads, the coordinator's reads for people, and here what block servers post (docs/protocol.md,
"Hints"). Whoever posts proves to be the peer that it names; docs/threat-model.md says what that holds off.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Router
from ninja.renderers import BaseRenderer
from ninja.responses import NinjaJSONEncoder

from coordinator import hints, leases, limits, problems, reports, signatures
from coordinator.addresses import swarm_of
from coordinator.limits import digest_of
from coordinator.models import Lease
from coordinator.reads import router as reads_router
from monitor import live
from monitor.api.caching import SLOW, note_rule
from monitor.api.openapi import completed
from monitor.api.problems import UNKNOWN_HINT, Problem
from monitor.api.routes import V1, V2
from swarm.wire.hints import HintAnswer, HintRequest, LeaseReply, LeaseStep, NonceDocument
from swarm.wire.identity import NONCE_HEADER
from swarm.wire.reports import ReportReply, ReportRequest
from swarm.wire.text import clean_text

router = Router(tags=["hints"])

NOT_SIGNED = "the question is not signed with the peer's key, so this is advice to look at; only the peer itself gets a lease"


@router.post("/hint/nonce", response=NonceDocument, summary="A word to be signed once")
def nonce(request: HttpRequest) -> NonceDocument:
    limits.count(limits.REQUESTS_OF_AN_ADDRESS, limits.address_of(request))
    return NonceDocument(nonce=signatures.new_nonce(), expires_in_s=signatures.NONCE_LIFE_S)


@router.post("/hint", response=HintAnswer, summary="Where should this server serve?")
def hint(request: HttpRequest, response: HttpResponse, body: HintRequest) -> HintAnswer:
    """The question is also the heartbeat. The answer is to stay or a lease, always with a reason; the server decides.
    Without a signature there is the same advice, and no lease."""
    now, swarm = datetime.now(UTC), swarm_of(request)
    if not _proved(request, response, body.peer, len(body.offered)):
        limits.count(limits.PLANS_OF_AN_ADDRESS, limits.address_of(request), times=len(body.offered))
        return hints.look(swarm, body, now, NOT_SIGNED)
    answer = hints.answer(swarm, body, now, digest_of(limits.address_of(request)))
    if answer.lease is not None:
        live.request_push(swarm)
    return answer


@router.post("/lease/{lease_id}/accept", response=LeaseReply, summary="Before unloading anything: take the lease")
def accept(request: HttpRequest, response: HttpResponse, lease_id: UUID, body: LeaseStep) -> LeaseReply:
    lease = _own_lease(request, response, lease_id, body.peer)
    reply = hints.accept(lease.swarm, lease, body, datetime.now(UTC))
    live.request_push(lease.swarm)
    return reply


@router.post("/lease/{lease_id}/progress", response=LeaseReply, summary="Loading: keeps the lease open")
def progress(request: HttpRequest, response: HttpResponse, lease_id: UUID, body: LeaseStep) -> LeaseReply:
    lease = _own_lease(request, response, lease_id, body.peer)
    if leases.renew(lease, datetime.now(UTC), body.progress):
        live.request_push(lease.swarm)
        return LeaseReply(outcome="ok", reason=lease.reason)
    return LeaseReply(outcome="stale", reason="the lease has run out or is closed")


@router.post("/lease/{lease_id}/decline", response=LeaseReply, summary="No, with the reason; costs the server nothing")
def decline(request: HttpRequest, response: HttpResponse, lease_id: UUID, body: LeaseStep) -> LeaseReply:
    """`not_again_s` keeps the server from being asked to move for so long; arriving servers are always told where to go."""
    lease = _own_lease(request, response, lease_id, body.peer)
    why = clean_text(body.reason, 200) or "no reason given"
    closed = leases.decline(lease, why, timedelta(seconds=body.not_again_s), datetime.now(UTC))
    live.request_push(lease.swarm)
    return LeaseReply(outcome="ok" if closed else "stale", reason=lease.reason)


@router.post("/report", response=ReportReply, summary="What a client saw of the servers that it used")
def report(request: HttpRequest, response: HttpResponse, body: ReportRequest) -> ReportReply:
    """Signed like a hint. Counts little: one vote for an address, and only several together lower what is believed of a server,
    to half at most (docs/threat-model.md)."""
    limits.count(limits.REPORTS_OF_AN_ADDRESS, limits.address_of(request))
    if not _proved(request, response, body.peer):
        raise signatures.Refused("a report needs its reporter's signature: sign this request (docs/protocol.md)")
    return reports.take(swarm_of(request), body, digest_of(limits.address_of(request)), datetime.now(UTC))


def _proved(request: HttpRequest, response: HttpResponse, peer_id: str, models: int = 1) -> bool:
    """Whether the peer itself is asking; then the answer brings its next nonce. Each model that is asked about costs a plan."""
    limits.count(limits.REQUESTS_OF_AN_ADDRESS, limits.address_of(request), times=models)
    if not signatures.signer_of(request, peer_id):
        return False
    limits.count(limits.QUESTIONS_OF_A_PEER, peer_id)
    response[NONCE_HEADER] = signatures.new_nonce()
    return True


def _own_lease(request: HttpRequest, response: HttpResponse, lease_id: UUID, peer_id: str) -> Lease:
    """A lease is found only by the peer that it was given to."""
    if not _proved(request, response, peer_id):
        raise signatures.Refused("a lease is its peer's own: sign this request with the peer's key (docs/protocol.md)")
    lease = Lease.objects.filter(pk=lease_id, peer_id=peer_id, swarm=swarm_of(request)).first()
    if lease is None:
        raise Problem(UNKNOWN_HINT, "this peer has no lease with this id")
    return lease


class SiteAPI(NinjaAPI):
    """Its OpenAPI document says of every operation what holds for all of them."""

    @functools.lru_cache(maxsize=1)  # noqa: B019  (there is one API for as long as the process lives)
    def _document(self) -> dict[str, Any]:
        # Through JSON, so that it is what programs read, and nobody's dictionaries are shared.
        read: dict[str, Any] = json.loads(json.dumps(super().get_openapi_schema(path_prefix="/api/"), cls=DjangoJSONEncoder))
        return completed(read)

    def get_openapi_schema(self, **_: Any) -> Any:
        return self._document()


class CompactJSON(BaseRenderer):
    """Never NaN: that is no JSON, and whoever writes it is told so by a test and not by a reader."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> str:
        return json.dumps(data, cls=NinjaJSONEncoder, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _kept(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The document and its page change with the site's version only."""

    @functools.wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        note_rule(request, SLOW)
        return view(request, *args, **kwargs)

    return answer


api = SiteAPI(
    title="Sepal",
    version="1",
    description=(
        "Reads of Petals-compatible swarms, and hints for their block servers. Null means not known, never zero. Times are RFC"
        " 3339 in UTC. Spans are half-open: `start` to `end - 1`. Inside v1 there is only more: new operations, new fields, new"
        " words in answers. docs/api.md says which call is for which job."
    ),
    openapi_url="/v1/openapi.json",
    docs_url="/v1/docs",
    docs_decorator=_kept,
    urls_namespace="api",
    renderer=CompactJSON(),
)
problems.install(api)
for each in (*V1, router, reads_router):
    api.add_router("/v1", each)
for each in V2:
    api.add_router("/v2", each)
