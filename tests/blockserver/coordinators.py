"""A coordinator on loopback that answers what a test wants: a real HTTP server, so that the real client is tested."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STAY = {"advice": "stay", "reason_code": "nothing-needed", "reason": "every block has a server", "retry_after_s": 30.0}


def move(start: int, end: int, model: str = "") -> dict[str, Any]:
    """Within the model that is asked about, unless another one is named."""
    reason = {"reason_code": "hole", "reason": f"blocks {start}–{end - 1} have no server"}
    lease = {"id": "lease-1", "model": model, "start": start, "end": end, "urgency": "hole", "expires_in_s": 90.0, **reason}
    return {"advice": "move", "retry_after_s": 30.0, "lease": lease, **reason}


NONCE = "/api/v1/hint/nonce"
FRESH = {"nonce": "a-nonce-of-a-test", "expires_in_s": 120.0}
"""Whether it is signed rightly is not this coordinator's business."""


@dataclass
class Coordinator:
    """`answers` by path; a status code in the place of an answer fails the request with it."""

    url: str
    answers: dict[str, Any] = field(default_factory=lambda: {"/api/v1/hint": STAY})
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    read: list[tuple[str, str]] = field(default_factory=list)
    """Paths of GET requests, each with its authorization header."""


@contextlib.contextmanager
def coordinator() -> Iterator[Coordinator]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = json.loads(body) if self.path != NONCE else {}
            if self.path != NONCE:
                told.asked.append((self.path, asked))
            self.answer(asked)

        def do_GET(self) -> None:
            told.read.append((self.path, self.headers.get("authorization", "")))
            self.answer()

        def answer(self, asked: dict[str, Any] | None = None) -> None:
            answer = told.answers.get(self.path, FRESH if self.path == NONCE else 404)
            if isinstance(answer, dict) and (lease := answer.get("lease")):
                answer = {**answer, "lease": {**lease, "model": lease["model"] or (asked or {}).get("model")}}
            self.send_response(answer if isinstance(answer, int) else 200)
            payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = Coordinator(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
