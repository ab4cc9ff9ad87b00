"""What holds for all tests."""

from __future__ import annotations

import logging
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import settings

# How long an example takes is the machine's business: on a busy one any of them may be slow once.
settings.register_profile("sepal", deadline=None)
settings.load_profile("sepal")


class _WithoutTracebacks(logging.Filter):
    """asyncio reports tasks that nobody awaited, such as hivemind's when their p2pd is killed, whenever the garbage collector
    finds them. Python 3.11 parses source to print a traceback; where that happens while pytest itself parses source, the
    interpreter gives up with a SystemError ("AST constructor recursion depth mismatch"). So: what, but not where."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and not isinstance(record.exc_info, bool):
            record.msg, record.args = f"{record.getMessage()}: {record.exc_info[1]!r}", ()
            record.exc_info = None
        return True


logging.getLogger("asyncio").addFilter(_WithoutTracebacks())


@pytest.fixture(autouse=True)
def _all_in_one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often somebody may ask is counted by the minute; a test that asks too often must not begin at the end of one."""
    if (limits := sys.modules.get("monitor.limits")) is not None:
        began = time.time()
        monkeypatch.setattr(limits, "time", SimpleNamespace(time=lambda: began))


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    """What the site keeps for a while, one test's database would tell the next one."""
    for name in ("monitor.kept", "monitor.api.sight", "monitor.exposition", "coordinator.watching"):
        if (keeper := sys.modules.get(name)) is not None:
            keeper.forget()
