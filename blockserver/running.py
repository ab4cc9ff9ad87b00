"""Runs one asynchronous command from the shell: logs to stderr, errors as one sentence, signals, exit codes.

0 done · 1 it failed · 2 wrong usage · 3 the doctor found an error · 4 the swarm lacks blocks · 130 Ctrl-C.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TextIO

from swarm.errors import LocalError, MissingBlocks, RemoteError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNWELL = 3
EXIT_INCOMPLETE = 4
EXIT_INTERRUPTED = 130


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is at the time: libraries log from threads that outlive a redirected one."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        pass


_OURS = ("blockserver", "swarm", "__main__")


def _worth_telling(record: logging.LogRecord) -> bool:
    """What others log below a warning says nothing to an operator; asyncio warns of p2pd processes that outlive their loop."""
    if record.name == "asyncio" and record.exc_info and isinstance(record.exc_info[1], ConnectionError):
        return False  # what is left of a p2pd that was lost, and has been told of by then
    least = logging.ERROR if record.name == "asyncio" else logging.WARNING
    return record.levelno >= least or record.name.split(".")[0] in _OURS


def log_to_stderr(verbose: bool = False) -> None:
    handler = _Stderr()
    if not verbose:
        handler.addFilter(_worth_telling)
    logging.basicConfig(
        handlers=[handler],
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )


def run_until_stopped(work: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Runs a service. The first SIGTERM or Ctrl-C asks it to stop in order, the second ends it at once."""
    interrupted = False

    async def main() -> None:
        stop = asyncio.Event()

        def on_signal(number: int) -> None:
            nonlocal interrupted
            if stop.is_set():
                os._exit(EXIT_INTERRUPTED)
            interrupted = number == signal.SIGINT
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
        await work(stop)

    code = run(main())
    return EXIT_INTERRUPTED if interrupted and code == 0 else code


def run(work: Coroutine[Any, Any, None]) -> int:
    """The exit code. What we know to go wrong is one sentence on stderr; a traceback means a fault of ours."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except MissingBlocks as error:
        print(f"sepal: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_INCOMPLETE
    except (LocalError, RemoteError) as error:
        print(f"sepal: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    return 0
