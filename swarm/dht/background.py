"""An event loop on a thread of its own, for callers that have none: Celery's tasks share one long-lived node through it, and a
model that is called like any other has its connections there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from swarm.errors import Unreachable

T = TypeVar("T")

STOP_S = 2.0
"""For tasks to see that they are cancelled."""

log = logging.getLogger(__name__)


class BackgroundLoop:
    def __init__(self, name: str = "swarm") -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(note_in_one_line)
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        """The coroutine's result; Unreachable where it takes longer than `timeout_s`, after which it is cancelled.

        None is for work with time limits of its own; it is cancelled where the caller is interrupted (Ctrl-C).
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            if future.done():  # the work's own
                raise
            future.cancel()
            raise Unreachable(f"no result within {timeout_s:g} s") from error
        except KeyboardInterrupt:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancels what still runs: a task that is only dropped complains when the garbage collector finds it."""
        with contextlib.suppress(Unreachable):
            self.run(_cancel_others(), STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STOP_S)


def note_in_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A p2pd that dies leaves hivemind's own calls to it behind, dozens of them, each with a traceback that says nothing more.

    No traceback for another reason as well: Python 3.11 parses source to print one, and where the garbage collector finds the
    next such task meanwhile, the parser is entered twice and raises SystemError.
    """
    log.warning("%s: %r", context.get("message", "a task failed"), context.get("exception"))
