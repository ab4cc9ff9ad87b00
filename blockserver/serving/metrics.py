"""Prometheus metrics of one block server, and /readyz, on loopback. Few series, whatever the swarm does: no label holds a
peer, a session or a client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from blockserver.serving.condition import STATES, Condition
from swarm.errors import LocalError

ADDRESS = "127.0.0.1"


class ConditionCollector:
    """`read` gives the server's condition at the moment of a scrape."""

    def __init__(self, read: Callable[[], Condition]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        now = self._read()
        yield InfoMetricFamily(
            "sepal_server",
            "What runs here.",
            {
                "version": now.version,
                "device": now.device,
                "dtype": now.dtype,
                "quant_type": now.quant_type,
                "model": now.prefix,
            },
        )
        state = GaugeMetricFamily("sepal_server_state", "1 for the present state.", labels=["state"])
        for name in STATES:
            state.add_metric([name], float(now.state == name))
        yield state
        for name, help_text, value in (
            ("start_block", "First block of the span.", now.span.start if now.span else None),
            ("end_block", "First block after the span.", now.span.end if now.span else None),
            ("loading_ratio", "Share of the span's bytes in memory.", now.loading),
            ("sessions", "Open sessions.", now.sessions_active),
            ("cache_tokens_left", "Free attention cache: keys and values of all blocks.", now.cache_tokens_left),
            ("inference_blocks_per_second", "Measured: tokens times blocks, token by token.", now.inference_rps),
            ("forward_blocks_per_second", "Measured: tokens times blocks, in parallel.", now.forward_rps),
            ("network_tokens_per_second", "Measured against peers.", now.network_rps),
            ("swarm_connected", "Whether p2pd answers.", float(now.connected)),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"sepal_server_{name}", help_text, value=float(value))
        for name, help_text, count in (
            ("announcements", "Rounds of announcements.", now.announcements),
            ("announcement_failures", "Rounds that the DHT did not take whole.", now.announcement_failures),
            ("reconnects", "Times that p2pd was replaced.", now.reconnects),
            ("moves", "Times that other blocks were loaded.", now.moves),
        ):
            yield CounterMetricFamily(f"sepal_server_{name}", help_text, value=float(count))


class MetricsPage:
    """Serves on a thread of its own until `close`."""

    def __init__(self, port: int, read: Callable[[], Condition]) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(ConditionCollector(read))

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif self.path == "/readyz":
                    now = read()
                    ready = now.state == "online" and now.connected
                    self._answer(200 if ready else 503, f"{now.in_words()}\n".encode(), "text/plain; charset=utf-8")
                else:
                    self._answer(404, b"/metrics or /readyz\n", "text/plain; charset=utf-8")

            def _answer(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Scrapes are not worth a line each."""

        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), Page)
        except OSError as error:
            raise LocalError(f"--metrics-port {port}: {error.strerror}. Choose another port, or 0 for any") from error
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
