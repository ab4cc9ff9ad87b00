"""One rpc_forward or rpc_backward to one server, with time limits of our own and every answer checked.

Knows messages of one hop; does not know other servers, nor what to do when this one fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import torch
from hivemind.p2p import P2P, P2PDaemonError, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, P2PHandlerError
from hivemind.proto import runtime_pb2

from blockserver.client.stream import Limits
from blockserver.wire import protocol, tensors
from swarm.errors import RemoteError, Unreachable
from swarm.routing import Hop

STREAM_ABOVE_BYTES = 2**20
"""Requests above this size go as a stream, as Petals' client sends them: half of what a unary message may hold."""

WIDEST_ANSWER = torch.float32.itemsize
"""Bytes of a number in an answer: servers answer in their own dtype, which may be wider than ours."""

BACKWARD_COST = 3.0
"""A backward pass recomputes forward and then takes about twice as long again."""

PATIENT = Limits()

_NOTHING = torch.empty(0)


async def forward(
    p2p: P2P, prefix: str, hop: Hop, hidden: torch.Tensor, prompts: torch.Tensor | None = None, limits: Limits = PATIENT
) -> torch.Tensor:
    """Hidden states `[batch, tokens, hidden]` through the hop's blocks, in the dtype given. `prompts` `[blocks, batch, prefix,
    hidden]`. Raises RemoteError or Unreachable."""
    given = [hidden, _NOTHING if prompts is None else prompts]
    answer = await _call(p2p, prefix, hop, "rpc_forward", given, limits, 1.0)
    if len(answer) != 1:
        raise RemoteError(f"a forward pass is answered by one tensor, not {len(answer)}")
    return _checked(answer[0], hidden)


async def backward(
    p2p: P2P,
    prefix: str,
    hop: Hop,
    hidden: torch.Tensor,
    gradient: torch.Tensor,
    prompts: torch.Tensor | None = None,
    limits: Limits = PATIENT,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Gradients of `hidden` and of `prompts` (None where none were given), from that of the hop's output."""
    given = [hidden, gradient, _NOTHING if prompts is None else prompts]
    answer = await _call(p2p, prefix, hop, "rpc_backward", given, limits, BACKWARD_COST)
    expected = 1 if prompts is None else 2
    if len(answer) != expected:
        raise RemoteError(f"a backward pass is answered by {expected} tensors here, not {len(answer)}")
    return _checked(answer[0], hidden), None if prompts is None else _checked(answer[1], prompts)


async def _call(
    p2p: P2P, prefix: str, hop: Hop, method: str, given: Sequence[torch.Tensor], limits: Limits, cost: float
) -> list[torch.Tensor]:
    request = runtime_pb2.ExpertRequest(
        uid=protocol.uids(prefix, hop.span),
        tensors=[tensors.encode(tensor) for tensor in given],
        metadata=protocol.pass_metadata(len(given)),
    )
    tokens = given[0].shape[0] * given[0].shape[1]
    patience = limits.open_s + cost * (limits.step_s + tokens * limits.token_s)
    large = sum(tensor.numel() for tensor in given) * WIDEST_ANSWER > STREAM_ABOVE_BYTES
    try:
        async with asyncio.timeout(patience):
            answered = await (_streamed if large else _unary)(p2p, PeerID.from_base58(hop.peer_id), method, request)
    except TimeoutError:
        raise Unreachable(f"{hop.peer_id} did not answer within {patience:g} s") from None
    except P2PHandlerError as error:
        raise RemoteError(f"{hop.peer_id} refused: {str(error)[:300]}") from error
    except (P2PDaemonError, ControlFailure, OSError, EOFError) as error:
        raise Unreachable(f"{hop.peer_id} cannot be reached: {error}") from error
    return [tensors.decode(message) for message in answered]


async def _unary(p2p: P2P, peer: PeerID, method: str, request: runtime_pb2.ExpertRequest) -> list[runtime_pb2.Tensor]:
    name = protocol.rpc_name(method)
    answer = await p2p.call_protobuf_handler(peer, name, request, runtime_pb2.ExpertResponse)
    return list(answer.tensors)


async def _streamed(p2p: P2P, peer: PeerID, method: str, request: runtime_pb2.ExpertRequest) -> list[runtime_pb2.Tensor]:
    name = protocol.rpc_name(f"{method}_stream")
    answers = await p2p.iterate_protobuf_handler(peer, name, _parts(request), runtime_pb2.ExpertResponse)
    parts: list[runtime_pb2.Tensor] = []
    received = 0
    async for answer in answers:
        parts.extend(answer.tensors)
        received += sum(len(part.buffer) for part in answer.tensors)
        if received > 2 * tensors.MAX_TENSOR_BYTES:
            raise RemoteError(f"{peer} sent more than any answer holds")
    return tensors.join(parts)


async def _parts(request: runtime_pb2.ExpertRequest) -> AsyncIterator[runtime_pb2.ExpertRequest]:
    """Uid and metadata in each, as Petals' client repeats them."""
    for tensor in request.tensors:
        for part in tensors.split(tensor):
            yield runtime_pb2.ExpertRequest(uid=request.uid, tensors=[part], metadata=request.metadata)


def _checked(answer: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """In the shape, dtype and place of `like`. A value that is not finite would spoil all that follows."""
    if answer.shape != like.shape or not answer.is_floating_point():
        raise RemoteError(f"a tensor of shape {list(like.shape)} was answered by {list(answer.shape)}")
    if not bool(answer.isfinite().all()):
        raise RemoteError("the answer holds values that are not finite")
    return answer.to(device=like.device, dtype=like.dtype)
