"""`python -m coordinator.web`: the web process, on uvicorn. Knows limits, log, and how it stops; what it serves is `asgi`'s.

One process. More of them are more of these commands on other ports, with a proxy in front.
"""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from collections.abc import Sequence

import uvicorn

from coordinator.asgi import application, http

STOP_S = 3
"""How long answers may take to finish once the process is told to stop; the launcher waits for 5 s."""
KEEP_ALIVE_S = 75
"""Longer than proxies keep a connection that nobody uses (nginx: 60 s): one that we close is one that they are about to use."""
PING_S = 20.0
"""Between two pings of a WebSocket, and until the answer must have come: proxies close what is silent for a minute."""
MAX_HEAD = 16 * 1024
"""Bytes of a request's line and headers of which the end has not come."""
MAX_MESSAGE = 4 * 1024
"""Bytes of a WebSocket message to us. Pages send none."""


SWITCH_S = 0.0005
"""Seconds; a tenth of Python's own: while a thread reads a new crawl, what lies ready is still given out."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m coordinator.web", description="Serve the site: pages, API, WebSockets.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free (default: %(default)s)")
    options = parser.parse_args(argv)
    for name in ("uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).addFilter(without_caller)
    sys.setswitchinterval(SWITCH_S)
    Server(config(options.host, options.port)).run()


def config(host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        # Named, so that it is the same one wherever another happens to be installed too.
        http="h11",
        h11_max_incomplete_event_size=MAX_HEAD,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        # A page's parts are sent to hundreds of tabs, and would be compressed for each of them.
        ws_per_message_deflate=False,
        lifespan="off",
        # Django's logging is ours.
        log_config=None,
        # Whom to believe about callers' addresses the site decides itself (SEPAL_TRUSTED_PROXIES).
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )


class Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        http.close()
        await super().shutdown(sockets)


def without_caller(record: logging.LogRecord) -> bool:
    """Lines of requests begin with the caller's address, which is written nowhere."""
    if isinstance(record.args, tuple) and isinstance(record.msg, str) and record.msg.startswith("%s - "):
        record.msg, record.args = record.msg.removeprefix("%s - "), record.args[1:]
    return True


if __name__ == "__main__":
    main()
