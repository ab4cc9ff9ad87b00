"""Peers that can prove who they are: real keys, the real header, over Django's test client."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from django.test import Client
from pydantic import BaseModel

from swarm.snapshot import Server
from swarm.wire.hints import HintRequest, SpanDocument
from swarm.wire.identity import Signer
from swarm.wire.spans import Span
from tests.swarms import server

HOST = "testserver"


def signer(name: str) -> Signer:
    return Signer.from_seed(hashlib.sha256(name.encode()).digest())


def signed_server(name: str, start: int, end: int, **more: Any) -> Server:
    """A server whose peer id belongs to `signer(name)`."""
    return replace(server(name, start, end, **more), peer_id=signer(name).peer_id)


def fresh_nonce(client: Client) -> str:
    nonce: str = client.post("/api/v1/hint/nonce").json()["nonce"]
    return nonce


@dataclass
class Peer:
    """Posts as a block server does, with a nonce of its own for each request unless one is given."""

    name: str
    client: Client

    @property
    def signer(self) -> Signer:
        return signer(self.name)

    @property
    def peer_id(self) -> str:
        return self.signer.peer_id

    def question(self, serving: Span | None = None, num_blocks: int = 12) -> HintRequest:
        current = SpanDocument(start=serving.start, end=serving.end) if serving else None
        return HintRequest(
            peer=self.peer_id, model="tiny-hf", num_blocks_max=num_blocks, num_blocks=num_blocks, current=current
        )

    def headers(self, path: str, body: bytes, nonce: str | None = None, host: str = HOST) -> dict[str, str]:
        proof = self.signer.prove("POST", host, f"/api/v1{path}", body, nonce or fresh_nonce(self.client))
        return {"Authorization": proof.header()}

    def post(self, path: str, body: BaseModel | dict[str, Any], nonce: str | None = None, **extra: Any) -> Any:
        content = (body if isinstance(body, BaseModel) else _Loose(**body)).model_dump_json().encode()
        headers = self.headers(path, content, nonce)
        return self.client.post(f"/api/v1{path}", data=content, content_type="application/json", headers=headers, **extra)

    def ask(self, serving: Span | None = None, **extra: Any) -> dict[str, Any]:
        response = self.post("/hint", self.question(serving), **extra)
        assert response.status_code == 200, response.content
        answer: dict[str, Any] = response.json()
        return answer

    def step(self, lease_id: str, step: str, **fields: Any) -> Any:
        return self.post(f"/lease/{lease_id}/{step}", {"peer": self.peer_id, **fields})


class _Loose(BaseModel):
    model_config = {"extra": "allow"}
