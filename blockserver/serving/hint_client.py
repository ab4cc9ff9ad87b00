"""Asks the coordinator over HTTP. Short time limits, small answers, no redirects, no cookies; whatever goes wrong there is
CoordinatorDown, and never stops a server.

With a `Signer` each request is signed over a nonce that the coordinator gave; each answer brings the next nonce. Without one
the coordinator gives advice to look at, and no lease.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
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
"""For one request, to the last byte of its answer. The coordinator answers in milliseconds; a server that waits longer serves
worse."""
MOST_BYTES = 65_536
"""Of an answer. The longest reason takes a twentieth of it."""

BUSY_PROBLEM = "/busy"
"""How the `type` of the problem document ends with which a coordinator says that too many ask at once."""
BUSY_RETRY_S = 10.0
"""Where it does not say when to come back."""
RETRY_DIGITS = 4
"""Of a Retry-After in seconds. A longer one, or a date, is no answer to a question that is asked twice a minute."""

Reply = TypeVar("Reply", bound=BaseModel)


class CoordinatorDown(RemoteError):
    """No usable answer. The server goes on as it is, and decides by itself when this lasts. `retry_after_s` is there where the
    coordinator is busy and says when to ask again."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    nonce: str
    retry_after: str


class Busy(CoordinatorDown):
    """The coordinator is there, and has too much to do: ask again in `told_s` seconds."""

    def __init__(self, message: str, told_s: float) -> None:
        super().__init__(message, told_s)
        self.told_s = told_s


class HintClient:
    """`timeout_s` is for each request; a question takes three of them at most."""

    def __init__(self, coordinator: str, signer: Signer | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.coordinator = coordinator.rstrip("/")
        self._signer = signer
        self._nonce: str | None = None
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            base_url=f"{self.coordinator}{API}",
            timeout=timeout_s,
            # What is not packed cannot unpack to gigabytes.
            headers={"accept-encoding": "identity"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

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
            answer = await self._send(path, content)
            if answer.status == httpx.codes.UNAUTHORIZED and self._signer is not None:
                # The nonce was too old, or was for a coordinator that has restarted; this answer brought another one.
                answer = await self._send(path, content)
            return reply.model_validate_json(self._taken(answer))
        except TimeoutError as error:
            raise CoordinatorDown(f"{self.coordinator} does not answer within {self._timeout_s:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CoordinatorDown(f"{self.coordinator} does not answer ({type(error).__name__})") from error
        except ValueError as error:
            raise CoordinatorDown(f"{self.coordinator} answers something that is no hint") from error

    async def _send(self, path: str, content: bytes) -> _Answer:
        request = self._http.build_request("POST", path, content=content, headers={"content-type": "application/json"})
        nonce: str | None = None
        if self._signer is not None:
            nonce = self._nonce or await self._fetch_nonce()
            proof = self._signer.prove(
                request.method, request.url.host, f"{signed_base(self.coordinator)}{path}", content, nonce
            )
            request.headers["authorization"] = proof.header()
            self._nonce = None
        answer = await self._exchange(request)
        self._nonce = answer.nonce if is_nonce(answer.nonce) else None
        if self._nonce is None and answer.status == httpx.codes.SERVICE_UNAVAILABLE:
            # Most likely nobody has looked at it; to fetch another one would be one more request of a crowd.
            self._nonce = nonce
        return answer

    async def _fetch_nonce(self) -> str:
        answer = await self._exchange(self._http.build_request("POST", "/hint/nonce"))
        return NonceDocument.model_validate_json(self._taken(answer)).nonce

    async def _exchange(self, request: httpx.Request) -> _Answer:
        """TimeoutError, httpx.HTTPError, or ValueError where the answer is too long. A time limit for each read alone would
        let a coordinator that sends a byte now and then hold a server for good."""
        async with asyncio.timeout(self._timeout_s):
            response = await self._http.send(request, stream=True)
            try:
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise ValueError(f"more than {MOST_BYTES} bytes")
            finally:
                await response.aclose()
        headers = response.headers
        nonce, retry_after = headers.get(NONCE_HEADER, ""), headers.get("retry-after", "")
        return _Answer(response.status_code, bytes(body), nonce, retry_after)

    def _taken(self, answer: _Answer) -> bytes:
        if httpx.codes.is_success(answer.status):
            return answer.body
        retry_after_s = _seconds(answer.retry_after)
        if _is_busy(answer):
            raise Busy(f"{self.coordinator} has too much to do just now", retry_after_s or BUSY_RETRY_S)
        down = answer.status == httpx.codes.SERVICE_UNAVAILABLE
        raise CoordinatorDown(f"HTTP {answer.status} from {self.coordinator}", retry_after_s if down else None)


class _Problem(BaseModel):
    type: str = ""


def _is_busy(answer: _Answer) -> bool:
    if answer.status != httpx.codes.SERVICE_UNAVAILABLE:
        return answer.status == httpx.codes.TOO_MANY_REQUESTS
    try:
        return _Problem.model_validate_json(answer.body).type.endswith(BUSY_PROBLEM)
    except ValidationError:
        return False


def _seconds(told: str) -> float | None:
    """Of a Retry-After; None where it is a date or nonsense."""
    return float(told) if told.isascii() and told.isdigit() and len(told) <= RETRY_DIGITS else None
