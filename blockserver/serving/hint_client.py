"""Asks the coordinator over HTTP. Short time limits; whatever goes wrong there is CoordinatorDown, and never stops a server."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from swarm.errors import RemoteError
from swarm.wire.hints import HintAnswer, HintRequest, LeaseDocument, LeaseReply, LeaseStep

TIMEOUT_S = 5.0
"""The coordinator answers in milliseconds; a server that waits longer serves worse."""

Reply = TypeVar("Reply", bound=BaseModel)


class CoordinatorDown(RemoteError):
    """No usable answer. The server goes on as it is, and decides by itself when this lasts."""


class HintClient:
    def __init__(self, coordinator: str) -> None:
        self.coordinator = coordinator.rstrip("/")
        self._http = httpx.AsyncClient(base_url=f"{self.coordinator}/api/v1", timeout=TIMEOUT_S)

    async def __aenter__(self) -> HintClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def ask(self, request: HintRequest) -> HintAnswer:
        return await self._post("/hint", request, HintAnswer)

    async def accept(self, lease: LeaseDocument, peer_id: str) -> LeaseReply:
        return await self._post(f"/lease/{lease.id}/accept", LeaseStep(peer=peer_id), LeaseReply)

    async def report_progress(self, lease: LeaseDocument, peer_id: str, progress: float) -> LeaseReply:
        return await self._post(f"/lease/{lease.id}/progress", LeaseStep(peer=peer_id, progress=progress), LeaseReply)

    async def decline(self, lease: LeaseDocument, peer_id: str, reason: str) -> LeaseReply:
        return await self._post(f"/lease/{lease.id}/decline", LeaseStep(peer=peer_id, reason=reason), LeaseReply)

    async def _post(self, path: str, body: BaseModel, reply: type[Reply]) -> Reply:
        try:
            response = await self._http.post(path, content=body.model_dump_json(), headers={"content-type": "application/json"})
            response.raise_for_status()
            return reply.model_validate_json(response.content)
        except httpx.HTTPStatusError as error:
            raise CoordinatorDown(f"HTTP {error.response.status_code} from {self.coordinator}") from error
        except httpx.HTTPError as error:
            raise CoordinatorDown(f"{self.coordinator} does not answer ({type(error).__name__})") from error
        except ValidationError as error:
            raise CoordinatorDown(f"{self.coordinator} answers something that is no hint") from error
