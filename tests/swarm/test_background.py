"""Work on a loop of its own ends when its caller is done with it, however that comes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from swarm.dht.background import BackgroundLoop
from swarm.errors import Unreachable


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    running = BackgroundLoop("test")
    yield running
    running.stop()


class Endless:
    """Work that never ends by itself."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    async def work(self, interrupt: bool = False) -> None:
        if interrupt:
            # Not before the caller waits: a signal that comes earlier interrupts something else.
            await asyncio.to_thread(until_the_main_thread_waits)
            os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


def until_the_main_thread_waits() -> None:
    main, pause = threading.main_thread().ident, threading.Event()
    while main is not None and sys._current_frames()[main].f_code.co_name != "wait":
        pause.wait(0.001)


def test_what_takes_too_long_is_cancelled(loop: BackgroundLoop) -> None:
    endless = Endless()
    with pytest.raises(Unreachable, match=r"no result within 0\.01 s"):
        loop.run(endless.work(), 0.01)
    assert endless.cancelled.wait(10)


def test_what_still_runs_when_the_loop_stops_is_cancelled_and_not_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # what other tests left behind complains now
    caplog.clear()
    loop, endless = BackgroundLoop("test"), Endless()

    async def leave_behind() -> asyncio.Task[None]:
        return asyncio.create_task(endless.work())

    left = loop.run(leave_behind(), 10)
    loop.stop()
    assert endless.cancelled.wait(10) and left.cancelled()
    del left
    gc.collect()
    assert not caplog.records


def test_ctrl_c_cancels_what_was_waited_for(loop: BackgroundLoop) -> None:
    endless = Endless()
    with pytest.raises(KeyboardInterrupt):
        loop.run(endless.work(interrupt=True), None)
    assert endless.cancelled.wait(10)


def test_a_time_limit_of_the_works_own_is_not_taken_for_the_callers(loop: BackgroundLoop) -> None:
    async def gives_up() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        loop.run(gives_up(), 10)
