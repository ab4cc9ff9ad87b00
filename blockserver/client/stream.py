"""One inference session with one server: open, step, close.

Knows one rpc_inference stream and its time limits; does not know other servers, nor what to do when this one fails. The
limits are our own because a stream whose peer vanished either ends at once or stays silent for good (`docs/protocol.md`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hivemind.p2p import P2P, P2PDaemonError, PeerID
from hivemind.proto import runtime_pb2

from blockserver.wire import protocol, tensors
from swarm.errors import RemoteError, Unreachable
from swarm.routing import Hop


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a server."""

    open_s: float = 15.0
    """For the connection: a dial over the internet through a relay takes several seconds."""
    step_s: float = 30.0
    """For a step, whatever its size ..."""
    token_s: float = 0.05
    """... and for each of its tokens: a long prefill on a slow volunteer's CPU."""


CLOSE_S = 1.0
"""For a last word to a server that may be gone."""


class ServerStream:
    """A session on the blocks of one hop. `position` tokens are in the server's cache."""

    def __init__(self, p2p: P2P, prefix: str, hop: Hop, max_length: int, limits: Limits = Limits()) -> None:
        self.hop = hop
        self.position = 0
        self._p2p = p2p
        self._uids = protocol.uids(prefix, hop.span)
        self._max_length = max_length
        self._limits = limits
        self.session_id = str(uuid.uuid4())
        self._pipe: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_open(self) -> bool:
        return self._pipe is not None

    async def step(
        self,
        hidden: torch.Tensor,
        step_id: str | None = None,
        onward: Sequence[protocol.NextServer] = (),
        push_from: str | None = None,
    ) -> torch.Tensor:
        """The outputs `[batch, tokens, hidden]` of the tokens that follow those so far. Raises RemoteError or Unreachable.

        The server also pushes them to the first of `onward`, under the same `step_id`. A step that was pushed to this
        server is given to it all the same: it is not computed twice, and perhaps the push got lost. `push_from` is the peer
        that may push the next ones.
        """
        request = self._request(hidden, step_id or str(uuid.uuid4()), onward, push_from)
        pipe = self._pipe or await self._open()
        output = _output(await self._ask(pipe, request, hidden.shape[0] * hidden.shape[1]), hidden)
        self.position += hidden.shape[1]
        return output

    async def close(self) -> None:
        """Ends the session without waiting for the server, which frees its cache when it sees the stream end."""
        pipe, self._pipe = self._pipe, None
        if pipe is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await P2P.send_protobuf(runtime_pb2.ExpertRequest(), pipe[1])
                await P2P.send_protobuf(P2P.END_OF_STREAM, pipe[1])
        except (TimeoutError, OSError):
            pass  # it is gone already, which is what was wanted
        finally:
            pipe[1].close()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        peer = PeerID.from_base58(self.hop.peer_id)
        try:
            async with asyncio.timeout(self._limits.open_s):
                _, reader, writer = await self._p2p.call_binary_stream_handler(peer, protocol.rpc_name("rpc_inference"))
        except TimeoutError:
            raise Unreachable(f"{self.hop.peer_id} did not answer within {self._limits.open_s:g} s") from None
        except (P2PDaemonError, OSError) as error:
            raise Unreachable(f"{self.hop.peer_id} cannot be reached: {error}") from error
        self._pipe = (reader, writer)
        return self._pipe

    async def _ask(
        self,
        pipe: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        request: runtime_pb2.ExpertRequest,
        tokens: int,
    ) -> runtime_pb2.ExpertResponse:
        reader, writer = pipe
        patience = self._limits.step_s + tokens * self._limits.token_s
        try:
            async with asyncio.timeout(patience):
                # hivemind's own iterator waits for its writer when the stream breaks, so a dead server looks like a slow one.
                await P2P.send_protobuf(request, writer)
                answer, refusal = await P2P.receive_protobuf(runtime_pb2.ExpertResponse, reader)
        except TimeoutError:
            raise Unreachable(f"{self.hop.peer_id} was silent for {patience:g} s in a step") from None
        except (EOFError, OSError) as error:
            raise Unreachable(f"{self.hop.peer_id} is gone: {error}") from error
        except (DecodeError, TypeError) as error:
            raise RemoteError(f"{self.hop.peer_id} sent what is no answer: {error}") from error
        if answer is None:
            raise RemoteError(f"{self.hop.peer_id} refused: {refusal.message if refusal else 'without a reason'}")
        return answer

    def _request(
        self, hidden: torch.Tensor, step_id: str, onward: Sequence[protocol.NextServer], push_from: str | None
    ) -> runtime_pb2.ExpertRequest:
        metadata = (
            protocol.opening_metadata(self.session_id, step_id, self._max_length, None)
            if self._pipe is None
            else protocol.step_metadata(self.session_id, step_id, self.position, onward, push_from)
        )
        arguments = [tensors.encode(hidden), _NO_PROMPTS, _NO_ROWS]
        return runtime_pb2.ExpertRequest(uid=self._uids, tensors=arguments, metadata=metadata)


_NO_PROMPTS = tensors.encode(torch.empty(0))
_NO_ROWS = tensors.encode(torch.empty(0, dtype=torch.int64))


def _output(answer: runtime_pb2.ExpertResponse, hidden: torch.Tensor) -> torch.Tensor:
    """Checked, because the next server would be blamed for it."""
    if len(answer.tensors) != 1:
        raise RemoteError(f"a step's answer holds one tensor, not {len(answer.tensors)}")
    output = tensors.decode(answer.tensors[0])
    if output.shape != hidden.shape or not output.is_floating_point():
        raise RemoteError(f"a step of shape {list(hidden.shape)} was answered by {list(output.shape)}")
    return output.to(hidden.dtype)
