"""Steps handed from server to server: who may push into a session, and how an output is pushed on.

A push can only help. A pushed step is computed at once, and the client's own copy of it, with the same id, is then not
computed again; a push that is late, malformed, or from the wrong peer is counted and forgotten, and the client's copy does
the work. Who may push: a peer that knows the session's id, which is random and known to its client, this server and the
server before it only; of those the one that the client named in its last step, or else the first that pushed,
until the client's own copy comes first again. libp2p authenticates the peer. Knows sessions' ids; not engines.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hivemind.p2p import P2P, P2PDaemonError, P2PHandlerError, PeerID
from hivemind.proto import runtime_pb2

from blockserver.wire import protocol

MOST_WAITING = 2
"""Pushed steps of one session; its client sends the next step when it has the last one's answer."""

MOST_BYTES = 2**20
"""Of a pushed output. Longer ones are prefills, in which the way over the client costs little."""

PUSH_TIMEOUT_S = 10.0
"""The client's own copy will long have come by then."""


@dataclass(slots=True, eq=False)
class Inbox:
    """Pushed steps of one open session, in order. `arrived` is done while there are some."""

    arrived: asyncio.Future[None]
    named: str | None = None
    pusher: str | None = None
    waiting: deque[runtime_pb2.ExpertRequest] = field(default_factory=deque)

    def take(self) -> runtime_pb2.ExpertRequest:
        request = self.waiting.popleft()
        if not self.waiting:
            self.arrived = asyncio.get_running_loop().create_future()
        return request

    def client_was_first(self) -> None:
        """A new server may have taken the place of the one before: whoever pushes next may do so from now on."""
        self.pusher = None


class Pushes:
    """All sessions that take pushes, and the pushes under way. `ignored` counts by reason."""

    def __init__(self, p2p: P2P, prefix: str) -> None:
        self._p2p = p2p
        self.prefix = prefix
        self._inboxes: dict[str, Inbox] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self.ignored: Counter[str] = Counter()
        self.taken = 0
        self.sent = 0

    @contextmanager
    def inbox(self, session_id: str) -> Iterator[Inbox]:
        """For as long as the session is open. An id that is short, or in use, is no secret: that session takes no pushes."""
        inbox = Inbox(asyncio.get_running_loop().create_future())
        if len(session_id) < protocol.MIN_PUSH_ID_LENGTH or session_id in self._inboxes:
            yield inbox
            return
        self._inboxes[session_id] = inbox
        try:
            yield inbox
        finally:
            del self._inboxes[session_id]

    def receive(self, sender: str, session_id: str | None, request: runtime_pb2.ExpertRequest) -> None:
        inbox = self._inboxes.get(session_id or "")
        if inbox is None:
            self.ignored["unknown session"] += 1
        elif sender != (inbox.named or inbox.pusher or sender):
            self.ignored["another peer pushes"] += 1
        elif len(inbox.waiting) >= MOST_WAITING:
            self.ignored["too many"] += 1
        else:
            inbox.pusher = sender
            inbox.waiting.append(request)
            if not inbox.arrived.done():
                inbox.arrived.set_result(None)

    def send(
        self,
        onward: Sequence[protocol.NextServer],
        metadata: Mapping[str, Any],
        tensors: Sequence[runtime_pb2.Tensor],
    ) -> asyncio.Task[None] | None:
        """Begins to push; what becomes of it does not matter to the session."""
        if sum(len(tensor.buffer) for tensor in tensors) > MOST_BYTES:
            return None
        request = runtime_pb2.ExpertRequest(
            uid=protocol.uids(self.prefix, onward[0].span),
            tensors=tensors,
            metadata=protocol.pushed_metadata(metadata, onward),
        )
        task = asyncio.create_task(self._send(onward[0].peer_id, request))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _send(self, peer_id: str, request: runtime_pb2.ExpertRequest) -> None:
        # A peer that is gone or refuses: its client will find out by itself. ValueError: the client named no peer id.
        with contextlib.suppress(P2PDaemonError, P2PHandlerError, OSError, TimeoutError, ValueError):
            async with asyncio.timeout(PUSH_TIMEOUT_S):
                await self._p2p.call_protobuf_handler(
                    PeerID.from_base58(peer_id), protocol.rpc_name("rpc_push"), request, runtime_pb2.ExpertResponse
                )
                self.sent += 1
