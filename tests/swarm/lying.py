"""Block servers that answer what a test wants: rightly, in another precision, or with nonsense. Real peers on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import torch
from hivemind.p2p import P2P, P2PContext, ServicerBase
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer

from blockserver.model.blocks import SpanModule
from blockserver.wire.tensors import decode, encode
from swarm.wire.spans import Span
from tests.blockserver.loopback import loopback_peer

Lie = Callable[[torch.Tensor, torch.Tensor, Span], torch.Tensor]
"""What is answered: of the right answer, the input, and the blocks that were asked for."""

LIES: dict[str, Lie] = {
    "honest": lambda right, sent, span: right,
    "echo": lambda right, sent, span: sent,
    "zeros": lambda right, sent, span: torch.zeros_like(right),
    "not a number": lambda right, sent, span: right / 0.0 * 0.0,
    "double": lambda right, sent, span: right.double(),
    "random": lambda right, sent, span: sent + torch.randn(right.shape) * (right - sent).std(),
    "lazy": lambda right, sent, span: right if len(span) == 1 else sent + torch.randn(right.shape) * (right - sent).std(),
}


class TransformerConnectionHandler(ServicerBase):
    """Holds `blocks`, each as a module of its own, and lies."""

    def __init__(self, blocks: dict[int, SpanModule], lie: Lie) -> None:
        self.blocks, self.lie = blocks, lie
        self.asked: list[tuple[Span, bytes]] = []

    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        width = next(iter(self.blocks.values())).facts.hidden_size
        return runtime_pb2.ExpertInfo(
            serialized_info=MSGPackSerializer.dumps({"forward_schema": (({"size": [None, 1, 2048, width]},), {})})
        )

    async def rpc_forward(self, request: runtime_pb2.ExpertRequest, context: P2PContext) -> runtime_pb2.ExpertResponse:
        indices = [int(uid.rpartition(".")[2]) for uid in request.uid.split(" ")]
        span = Span(indices[0], indices[-1] + 1)
        self.asked.append((span, request.tensors[0].buffer))
        sent = decode(request.tensors[0]).float()
        right = sent
        with torch.inference_mode():
            for index in indices:
                right = self.blocks[index].forward(right.to(self.blocks[index].dtype))
        return runtime_pb2.ExpertResponse(tensors=[encode(self.lie(right, sent, span))])


@dataclass
class Liar:
    p2p: P2P
    servicer: TransformerConnectionHandler

    @property
    def peer_id(self) -> str:
        return str(self.p2p.peer_id.to_base58())


@asynccontextmanager
async def lying(client: P2P, blocks: dict[int, SpanModule], lie: Lie) -> AsyncIterator[Liar]:
    """A peer that `client` knows."""
    p2p = await loopback_peer()
    try:
        found = Liar(p2p, TransformerConnectionHandler(blocks, lie))
        await found.servicer.add_p2p_handlers(p2p)
        addresses = [address.decapsulate(f"/p2p/{found.peer_id}") for address in await p2p.get_visible_maddrs()]
        await client._client.connect(p2p.peer_id, addresses)
        yield found
    finally:
        await p2p.shutdown()
