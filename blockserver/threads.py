"""Long blocking work on a thread that the process does not wait for when it ends.

`asyncio.to_thread` would: a signal that comes while many gigabytes are being loaded would wait for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(name: str, work: Callable[[], T]) -> T:
    """The result of `work`. When the caller is cancelled the thread goes on, and its result is dropped."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def deliver(set_result: Callable[[], None]) -> None:
        if not result.done():
            set_result()

    def run() -> None:
        try:
            outcome = work()
        # Door: the error belongs to whoever awaits the result.
        except BaseException as error:
            _call_soon(loop, lambda error=error: deliver(lambda: result.set_exception(error)))  # type: ignore[misc]
        else:
            _call_soon(loop, lambda: deliver(lambda: result.set_result(outcome)))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await result


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        # The loop is closed: the process ends, and nobody waits for the result.
        return
