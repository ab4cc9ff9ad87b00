"""Before a server says ONLINE: a tiny request through its own handler, as a client would send it, must come back sound.

A forward of two tokens and a session of two steps. Anything but finite hidden states of the right shape is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import torch
from hivemind.p2p import P2PContext
from hivemind.proto import runtime_pb2
from hivemind.utils import MSGPackSerializer

from blockserver.compute.engine import Engine
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.wire import tensors
from swarm.errors import LocalError, SwarmError
from swarm.wire.keys import block_uid

TOKENS = 2
TIMEOUT_S = 120.0
"""The first pass of a large span on a slow machine, kernels compiled on the way."""

_NOBODY = cast(P2PContext, None)
"""The handler's procedures do not look at who asks."""


async def check_own_blocks(handler: TransformerConnectionHandler, engine: Engine, prefix: str) -> None:
    """Raises LocalError, with what is wrong, where this server's answers would be of no use."""
    uid = " ".join(block_uid(prefix, block) for block in engine.span)
    hidden = torch.randn(1, TOKENS, engine.facts.hidden_size).to(engine.dtype)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await handler.rpc_forward(_request(uid, [hidden, _empty(engine.dtype)]), _NOBODY)
            _sound(answer, hidden, "a forward pass")
            steps = _session(uid, engine.dtype, hidden)
            async for step in handler.rpc_inference(steps, _NOBODY):
                _sound(step, hidden[:, :1], "a step of a session")
    except TimeoutError as error:
        raise LocalError(f"self-check: {engine.span.in_words()} gave no answer within {TIMEOUT_S:g} s") from error
    except SwarmError as error:
        raise LocalError(f"self-check: {engine.span.in_words()} cannot be served: {error}") from error


def _sound(answer: runtime_pb2.ExpertResponse, given: torch.Tensor, what: str) -> None:
    output = tensors.decode(answer.tensors[0])
    if output.shape != given.shape:
        raise LocalError(f"{what} gave hidden states of shape {list(output.shape)} for {list(given.shape)}")
    if not bool(output.isfinite().all()):
        raise LocalError(f"{what} gave values that are not finite")


async def _session(uid: str, dtype: torch.dtype, hidden: torch.Tensor) -> AsyncIterator[runtime_pb2.ExpertRequest]:
    opening = {"session_id": "self-check", "max_length": TOKENS, "points": 0.0}
    for position in range(TOKENS):
        token = hidden[:, position : position + 1]
        given = [token, _empty(dtype), torch.empty(0, dtype=torch.int64)]
        yield _request(uid, given, {**opening, "step_id": f"self-check-{position}", "start_from_position": position})


def _request(uid: str, given: list[torch.Tensor], more: dict[str, Any] | None = None) -> runtime_pb2.ExpertRequest:
    structure: tuple[Any, ...] = (tuple(f"__T{index}".encode() for index in range(len(given))), {})
    metadata = MSGPackSerializer.dumps({"args_structure": structure, **(more or {})})
    return runtime_pb2.ExpertRequest(uid=uid, tensors=[tensors.encode(tensor) for tensor in given], metadata=metadata)


def _empty(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype)
