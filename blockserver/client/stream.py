"""One inference session with one server: open, step, close.

Knows one rpc_inference stream and how long to wait for it (`pace`); does not know other servers, nor what to do when this one
fails.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hivemind.p2p import P2P, P2PDaemonError, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure, DispatchFailure, P2PHandlerError
from hivemind.proto import runtime_pb2

from blockserver.client.pace import Limits, Pace
from blockserver.wire import protocol, tensors
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError, Unreachable
from swarm.routing import Hop

__all__ = ["BadAnswer", "Limits", "ServerStream", "StepRequest"]

CLOSE_S = 1.0
"""For a last word to a server that may be gone."""

ALIVE_S = 1.0
"""For the answer to "are you there?" of a server that is connected; several round trips around the world."""

Pipe = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Reading = asyncio.Task[tuple[Any, Any]]
"""An answer, or a refusal."""


_GONE = (P2PDaemonError, ControlFailure, DispatchFailure, OSError)


class BadAnswer(RemoteError):
    """The server answered, but with what no block can have computed."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One step. `position` None: after the last, here and where it is handed on. The output is also pushed to the first of
    `onward`, under the same id; `push_from` is the peer that may push the next steps to this server."""

    given: BlockInput
    step_id: str
    position: int | None = None
    onward: Sequence[protocol.NextServer] = ()
    push_from: str | None = None

    @property
    def size(self) -> int:
        """Tokens in all rows."""
        return self.given.hidden.shape[0] * self.given.hidden.shape[1]


class ServerStream:
    """A session on the blocks of one hop. `position` tokens are in the server's cache."""

    def __init__(self, p2p: P2P, prefix: str, hop: Hop, max_length: int, limits: Limits | None = None) -> None:
        self.hop = hop
        self.position = 0
        self.pace = Pace()
        self.session_id = str(uuid.uuid4())
        self._p2p = p2p
        self._peer = PeerID.from_base58(hop.peer_id)
        self._uids = protocol.uids(prefix, hop.span)
        self._max_length = max_length
        self._limits = limits or Limits()
        self._pipe: Pipe | None = None
        self._reading: _Reading | None = None
        self.opening_s = 0.0
        """What opening it took, which is the way and not the server."""

    @property
    def is_open(self) -> bool:
        return self._pipe is not None

    @property
    def has_ended(self) -> bool:
        """Between two steps: whether the server has closed the session meanwhile, as it does with idle ones."""
        return self._reading is not None and self._reading.done()

    async def step(
        self,
        hidden: torch.Tensor,
        step_id: str | None = None,
        onward: Sequence[protocol.NextServer] = (),
        push_from: str | None = None,
    ) -> torch.Tensor:
        """The outputs `[batch, tokens, hidden]` of the tokens that follow those so far. Raises RemoteError or Unreachable."""
        return await self.ask(StepRequest(BlockInput(hidden), step_id or str(uuid.uuid4()), None, onward, push_from))

    async def ask(self, request: StepRequest) -> torch.Tensor:
        """A step that was pushed to this server before may be asked for all the same: it is not computed twice."""
        started = time.monotonic()
        await self.send(request)
        output = await self.answer(request)
        if request.given.hidden.shape[1] == 1:
            self.pace.note(time.monotonic() - started)
        return output

    async def send(self, request: StepRequest) -> None:
        message = self._message(request)
        pipe = self._pipe or await self._open()
        limit_s = self._limits.most_s(request.size)
        try:
            async with asyncio.timeout(limit_s):
                await P2P.send_protobuf(message, pipe[1])
        except TimeoutError:
            raise Unreachable(f"{self.hop.peer_id} took nothing for {limit_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{self.hop.peer_id} is gone: {error}") from error

    async def answer(self, request: StepRequest) -> torch.Tensor:
        """The next answer, which is that of `request`: a server answers each step once, in order."""
        suspicious_s = self.pace.suspicious_after_s(self._limits, request.size)
        hopeless_s = self.pace.hopeless_after_s(self._limits, request.size)
        if not await self.comes_within(suspicious_s):
            if hopeless_s > suspicious_s:
                await self._check_alive(suspicious_s)
            if not await self.comes_within(hopeless_s - suspicious_s):
                raise Unreachable(f"{self.hop.peer_id} was silent for {hopeless_s:.3g} s in a step")
        assert self._reading is not None
        reading, self._reading = self._reading, None
        output = _output(self._read(reading), request.given.hidden)
        self._listen()
        start = self.position if request.position is None else request.position
        self.position = start + request.given.hidden.shape[1]
        return output

    async def comes_within(self, seconds: float) -> bool:
        """Whether an answer, or the stream's end, is there. Nothing of it is lost where it comes later."""
        reading = self._listen()
        if reading is None:
            return False
        await asyncio.wait({reading}, timeout=max(seconds, 0.0))
        return reading.done()

    def _listen(self) -> _Reading | None:
        """A task that goes on: a time limit around the reading itself would throw away half a message."""
        if self._reading is None and self._pipe is not None:
            self._reading = asyncio.ensure_future(P2P.receive_protobuf(runtime_pb2.ExpertResponse, self._pipe[0]))
        return self._reading

    async def close(self) -> None:
        """Ends the session without waiting for the server, which frees its cache when it sees the stream end."""
        pipe = self._let_go()
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

    def abandon(self) -> None:
        """The same without a last word, for where nothing may be awaited. The server sees the stream break."""
        pipe = self._let_go()
        if pipe is not None:
            pipe[1].close()

    def _let_go(self) -> Pipe | None:
        pipe, self._pipe = self._pipe, None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            reading.add_done_callback(_forget_error)
        return pipe

    async def _open(self) -> Pipe:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._limits.open_s):
                _, reader, writer = await self._p2p.call_binary_stream_handler(self._peer, protocol.rpc_name("rpc_inference"))
        except TimeoutError:
            raise Unreachable(f"{self.hop.peer_id} did not answer within {self._limits.open_s:g} s") from None
        except (P2PDaemonError, OSError) as error:
            raise Unreachable(f"{self.hop.peer_id} cannot be reached: {error}") from error
        self._pipe, self.opening_s = (reader, writer), time.monotonic() - began
        return self._pipe

    async def _check_alive(self, silent_s: float) -> None:
        """Raises Unreachable where nobody is there any more: a machine that lost power ends no stream."""
        call = self._p2p.call_protobuf_handler(
            self._peer, protocol.rpc_name("rpc_info"), runtime_pb2.ExpertUID(), runtime_pb2.ExpertInfo
        )
        asked = asyncio.ensure_future(call)
        asked.add_done_callback(_forget_error)
        assert self._reading is not None
        await asyncio.wait({asked, self._reading}, timeout=ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
        if self._reading.done() or not asked.done():
            asked.cancel()
            if self._reading.done():
                return
            raise Unreachable(
                f"{self.hop.peer_id} was silent for {silent_s + ALIVE_S:.3g} s, and does not answer a call either"
            )
        # A refusal is an answer too.
        error = asked.exception()
        if isinstance(error, _GONE) and not isinstance(error, P2PHandlerError):
            raise Unreachable(f"{self.hop.peer_id} cannot be reached any more: {error}") from error

    def _read(self, reading: _Reading) -> runtime_pb2.ExpertResponse:
        try:
            answer, refusal = reading.result()
        except (EOFError, OSError) as error:
            raise Unreachable(f"{self.hop.peer_id} is gone: {error}") from error
        except (DecodeError, TypeError) as error:
            raise BadAnswer(f"{self.hop.peer_id} sent what is no answer: {error}") from error
        if answer is None:
            raise RemoteError(f"{self.hop.peer_id} refused: {getattr(refusal, 'message', None) or 'without a reason'}")
        return answer

    def _message(self, request: StepRequest) -> runtime_pb2.ExpertRequest:
        if self._pipe is None:
            metadata = protocol.opening_metadata(self.session_id, request.step_id, self._max_length, None, request.push_from)
        else:
            position = self.position if request.position is None and not request.onward else request.position
            metadata = protocol.step_metadata(self.session_id, request.step_id, position, request.onward, request.push_from)
        given = request.given
        arguments = [
            tensors.encode(given.hidden),
            _NO_PROMPTS if given.prompts is None else tensors.encode(given.prompts),
            _NO_ROWS if given.rows is None else tensors.encode(given.rows),
        ]
        return runtime_pb2.ExpertRequest(uid=self._uids, tensors=arguments, metadata=metadata)


_NO_PROMPTS = tensors.encode(torch.empty(0))
_NO_ROWS = tensors.encode(torch.empty(0, dtype=torch.int64))


def _forget_error(task: asyncio.Future[Any]) -> None:
    """Nobody awaits it any more, and asyncio would report what it ended with."""
    if not task.cancelled():
        task.exception()


def _output(answer: runtime_pb2.ExpertResponse, hidden: torch.Tensor) -> torch.Tensor:
    """Checked, because the next server would be blamed for it."""
    if len(answer.tensors) != 1:
        raise BadAnswer(f"a step's answer holds one tensor, not {len(answer.tensors)}")
    try:
        output = tensors.decode(answer.tensors[0])
    except RemoteError as error:
        raise BadAnswer(str(error)) from error
    if output.shape != hidden.shape or not output.is_floating_point():
        raise BadAnswer(f"a step of shape {list(hidden.shape)} was answered by {list(output.shape)}")
    if not output.isfinite().all():
        raise BadAnswer("a step was answered by values that are not finite")
    return output.to(hidden.dtype)
