"""Asks the coordinator over HTTP. Short time limits; whatever goes wrong there is CoordinatorDown, and never stops a server.

With a `Signer` each request is signed over a nonce that the coordinator gave; each answer brings the next nonce. Without one
the coordinator gives advice to look at, and no lease.
"""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from swarm.errors import RemoteError
from swarm.wire.hints import HintAnswer, HintRequest, LeaseDocument, LeaseReply, LeaseStep, NonceDocument, SpanDocument
from swarm.wire.identity import API, NONCE_HEADER, Signer, is_nonce, signed_base
from swarm.wire.reports import ReportReply, ReportRequest
from swarm.wire.spans import Span

TIMEOUT_S = 5.0
"""The coordinator answers in milliseconds; a server that waits longer serves worse."""

BUSY_PROBLEM = "/busy"
"""How the `type` of the problem document ends with which a coordinator says that too many ask at once."""
BUSY_RETRY_S = 10.0
"""Where it does not say when to come back."""
RETRY_DIGITS = 4
"""Of a Retry-After in seconds. A longer one, or a date, is no answer to a question that is asked twice a minute."""

Reply = TypeVar("Reply", bound=BaseModel)


class CoordinatorDown(RemoteError):
    """No usable answer. The server goes on as it is, and decides by itself when this lasts."""


class Busy(CoordinatorDown):
    """The coordinator is there, and has too much to do: ask again in `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class HintClient:
    def __init__(self, coordinator: str, signer: Signer | None = None) -> None:
        self.coordinator = coordinator.rstrip("/")
        self._signer = signer
        self._nonce: str | None = None
        self._http = httpx.AsyncClient(base_url=f"{self.coordinator}{API}", timeout=TIMEOUT_S)

    async def __aenter__(self) -> HintClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def ask(self, request: HintRequest) -> HintAnswer:
        return await self._post("/hint", request, HintAnswer)

    async def accept(self, lease: LeaseDocument, peer_id: str, serving: Span | None = None) -> LeaseReply:
        """`serving` is what the server serves now, which the offer may depend on."""
        current = SpanDocument(start=serving.start, end=serving.end) if serving else None
        step = LeaseStep(peer=peer_id, plan_version=lease.plan_version, current=current)
        return await self._post(f"/lease/{lease.id}/accept", step, LeaseReply)

    async def report_progress(self, lease: LeaseDocument, peer_id: str, progress: float) -> LeaseReply:
        return await self._post(f"/lease/{lease.id}/progress", LeaseStep(peer=peer_id, progress=progress), LeaseReply)

    async def decline(self, lease: LeaseDocument, peer_id: str, reason: str, not_again_s: float = 0.0) -> LeaseReply:
        """`reason` begins with a `DeclineReason`, or is a few words."""
        step = LeaseStep(peer=peer_id, reason=reason, not_again_s=not_again_s)
        return await self._post(f"/lease/{lease.id}/decline", step, LeaseReply)

    async def report(self, report: ReportRequest) -> ReportReply:
        """What a client saw of the servers that it used."""
        return await self._post("/report", report, ReportReply)

    async def _post(self, path: str, body: BaseModel, reply: type[Reply]) -> Reply:
        content = body.model_dump_json().encode()
        try:
            response = await self._send(path, content)
            if response.status_code == httpx.codes.UNAUTHORIZED and self._signer is not None:
                # The nonce was too old, or was for a coordinator that has restarted; this answer brought another one.
                response = await self._send(path, content)
            response.raise_for_status()
            return reply.model_validate_json(response.content)
        except httpx.HTTPStatusError as error:
            if (told := _told_to_wait(error.response)) is not None:
                raise Busy(f"{self.coordinator} has too much to do just now", told) from error
            raise CoordinatorDown(f"HTTP {error.response.status_code} from {self.coordinator}") from error
        except httpx.HTTPError as error:
            raise CoordinatorDown(f"{self.coordinator} does not answer ({type(error).__name__})") from error
        except ValidationError as error:
            raise CoordinatorDown(f"{self.coordinator} answers something that is no hint") from error

    async def _send(self, path: str, content: bytes) -> httpx.Response:
        request = self._http.build_request("POST", path, content=content, headers={"content-type": "application/json"})
        nonce: str | None = None
        if self._signer is not None:
            nonce = self._nonce or await self._fetch_nonce()
            proof = self._signer.prove(
                request.method, request.url.host, f"{signed_base(self.coordinator)}{path}", content, nonce
            )
            request.headers["authorization"] = proof.header()
            self._nonce = None
        response = await self._http.send(request)
        offered = response.headers.get(NONCE_HEADER, "")
        self._nonce = offered if is_nonce(offered) else None
        if self._nonce is None and response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            # Most likely nobody has looked at it; to fetch another one would be one more request of a crowd.
            self._nonce = nonce
        return response

    async def _fetch_nonce(self) -> str:
        response = await self._http.post("/hint/nonce")
        response.raise_for_status()
        return NonceDocument.model_validate_json(response.content).nonce


class _Problem(BaseModel):
    type: str = ""


def _told_to_wait(response: httpx.Response) -> float | None:
    """Seconds after which to ask again; None where that is not why there is no answer."""
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        try:
            if not _Problem.model_validate_json(response.content).type.endswith(BUSY_PROBLEM):
                return None
        except ValidationError:
            return None
    elif response.status_code != httpx.codes.TOO_MANY_REQUESTS:
        return None
    told = response.headers.get("retry-after", "")
    return float(told) if told.isascii() and told.isdigit() and len(told) <= RETRY_DIGITS else BUSY_RETRY_S
