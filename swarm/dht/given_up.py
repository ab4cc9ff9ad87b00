"""An answer to a call that has just been given up must not end the reader of all answers.

hivemind's reader sets the result of any call that is still listed. A call that was cancelled is listed until its task
runs again; an answer that is read in between ends the reader, and from then on every call runs into its time limit.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from hivemind.p2p import P2P


class PendingCalls(dict[UUID, "asyncio.Future[Any]"]):
    """Holds only those that still wait, for whoever asks whether a call is in it, as the reader does each time."""

    def __contains__(self, call_id: object) -> bool:
        call = self.get(call_id)  # type: ignore[call-overload]
        return call is not None and not call.done()


def outlive_late_answers(p2p: P2P) -> P2P:
    control = p2p._client.control
    control._pending_calls = PendingCalls(control._pending_calls)
    return p2p
