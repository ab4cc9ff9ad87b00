"""A gateway of a few lines for tests of the chat page: it says what a test wants, over real HTTP."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.swarms import peer_id

ROUTE = [{"peer": peer_id("a"), "blocks": "0-9"}, {"peer": peer_id("b"), "blocks": "10-29"}]
HOLE = "block 88 has no server since 14:02 UTC; see http://127.0.0.1:8000/m/tiny-hf"


@dataclass
class FakeGateway:
    url: str = ""
    why_not: str | None = None
    refusal: tuple[int, dict[str, Any]] | None = None
    """Status and error of the next answers."""
    words: tuple[str, ...] = ("The ", "capital", " is\n", "Paris 🌸 <b>")
    breaks_off: str = ""
    """`silently`, or the message of an error chunk, after half of the words."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """Answers wait for it after their first word."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a reader went away in the middle."""

    def chunks(self) -> Iterator[dict[str, Any] | None]:
        """None where the stream waits for `go_on`."""
        yield {"choices": [], "sepal": {"waiting_before": 3}}
        report = {"route": ROUTE, "tokens_per_second": None, "recoveries": 0}
        yield {"choices": [{"delta": {"role": "assistant", "content": ""}}], "sepal": report}
        for place, word in enumerate(self.words):
            if self.breaks_off and place == len(self.words) // 2:
                if self.breaks_off != "silently":
                    yield {"error": {"message": self.breaks_off, "code": "swarm_incomplete"}}
                return
            yield {"choices": [{"delta": {"content": word}}]}
            if not place:
                yield None
        last = {"route": ROUTE, "tokens_per_second": 12.34, "recoveries": 1}
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}], "sepal": last}

    def models(self) -> dict[str, Any]:
        return {"data": [{"id": "Tiny", "sepal": {"prefix": "tiny-hf", "why_not": self.why_not}}]}

    def lens(self) -> dict[str, Any]:
        guesses = [
            {"text": " Paris", "probability": 0.5},
            {"text": "\n", "probability": 0.25},
            {"text": "", "probability": 0.1},
        ]
        return {"rows": [{"blocks": 0, "peer": None, "top": guesses}, {"blocks": 1, "peer": peer_id("a"), "top": guesses}]}


class _Server(ThreadingHTTPServer):
    fake: FakeGateway


class _Door(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.fake.headers.append(dict(self.headers))
        self._send(200, self.server.fake.models())

    def do_POST(self) -> None:
        fake = self.server.fake
        fake.headers.append(dict(self.headers))
        fake.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if fake.refusal is not None:
            self._send(fake.refusal[0], {"error": fake.refusal[1]})
        elif self.path == "/v1/sepal/logit_lens":
            self._send(200, fake.lens())
        else:
            self._stream(fake)

    def _stream(self, fake: FakeGateway) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for chunk in fake.chunks():
                if chunk is None:
                    self._wait(fake)
                else:
                    self._write(f"data: {json.dumps(chunk)}\n\n")
            if not fake.breaks_off:
                self._write("data: [DONE]\n\n")
        except OSError:
            fake.left.set()

    def _wait(self, fake: FakeGateway) -> None:
        while not fake.go_on.wait(0.05):
            self._write(": still here\n\n")

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextlib.contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    fake = FakeGateway()
    fake.go_on.set()
    server = _Server(("127.0.0.1", 0), _Door)
    server.fake = fake
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield fake
    finally:
        fake.go_on.set()
        server.shutdown()
        server.server_close()
