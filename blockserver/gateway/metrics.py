"""The gateway's counters for Prometheus. Few series, whatever is asked: no label holds a caller, a peer or a text."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

NAME = "sepal_gateway"
OUTCOMES = ("answered", "refused", "failed", "gone")
"""`gone`: the caller left before the end."""
SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    def __init__(self) -> None:
        here = self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(f"{NAME}_requests", "Requests for an answer, by outcome.", ["outcome"], registry=here)
        self.tokens = Counter(f"{NAME}_tokens", "Tokens of prompts and of answers.", ["kind"], registry=here)
        self.recoveries = Counter(f"{NAME}_recoveries", "Servers replaced in the middle of an answer.", registry=here)
        self.sessions = Gauge(f"{NAME}_sessions", "Sessions open in the swarm.", registry=here)
        self.running = Gauge(f"{NAME}_running", "Answers under way.", registry=here)
        self.waiting = Gauge(f"{NAME}_waiting", "Requests that wait for their turn.", registry=here)
        self.missing = Gauge(f"{NAME}_missing_blocks", "Blocks without a server at the last look.", registry=here)
        first = "From a request's arrival to its first token, the queue included."
        self.first_token = Histogram(f"{NAME}_first_token_seconds", first, buckets=SECONDS, registry=here)
        queue = "From a request's arrival to its turn."
        self.waited = Histogram(f"{NAME}_queue_seconds", queue, buckets=SECONDS, registry=here)
        for outcome in OUTCOMES:
            self.requests.labels(outcome)
        for kind in ("prompt", "completion"):
            self.tokens.labels(kind)

    def watch(self, running: Callable[[], float], waiting: Callable[[], float], missing: Callable[[], float]) -> None:
        """Read at each scrape."""
        self.running.set_function(running)
        self.waiting.set_function(waiting)
        self.missing.set_function(missing)

    def page(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type, in the format that the reader asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
