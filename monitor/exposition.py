"""The text of a scrape. What follows from the snapshot alone is rendered once for each; what changes meanwhile, at each scrape.

Knows the two formats; not what the series are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from monitor.api.caching import version_of
from monitor.metrics import SwarmCollector, shown
from monitor.petals_metrics import PetalsCollector
from monitor.published import Watch

KEPT_S = 60.0
"""Servers that left an hour ago drop out by the clock alone."""
END = b"# EOF\n"
"""Of OpenMetrics, once."""


@dataclass(frozen=True, slots=True)
class Format:
    """No series here has a name that an older reader would have to escape; so there are two, whatever else is asked for."""

    content_type: str
    render: Callable[[Collector], bytes]

    def text(self, collectors: Iterable[Collector]) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            registry.register(collector)
        return self.render(registry)


PLAIN = Format(CONTENT_TYPE_PLAIN_0_0_4, generate_latest)
OPEN_METRICS = Format(openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest)


@dataclass(frozen=True, slots=True)
class _Rendered:
    version: tuple[object, ...]
    at: float
    text: bytes


_lock = threading.Lock()
_rendered: dict[tuple[str, Format], _Rendered] = {}


def format_of(accept: str) -> Format:
    kinds = {part.split(";")[0].strip().lower() for part in accept.split(",")}
    return OPEN_METRICS if "application/openmetrics-text" in kinds else PLAIN


def exposition(seen: Watch, changing: Iterable[Collector], wanted: Format) -> bytes:
    """Everything: of the snapshot, and of the collectors whose figures change without another one."""
    return _of_snapshot(seen, wanted).removesuffix(END) + wanted.text(changing)


def forget() -> None:
    with _lock:
        _rendered.clear()


def _of_snapshot(seen: Watch, wanted: Format) -> bytes:
    # Besides the snapshot two things decide what is told, both by the clock: whether it is believed, and whether it is shown.
    version = (version_of(seen), shown(seen), seen.interval_s)
    # One renders at a time: those who ask at once want the same.
    with _lock:
        known = _rendered.get((seen.swarm, wanted))
        if known is None or known.version != version or not 0 <= time.monotonic() - known.at < KEPT_S:
            text = wanted.text((SwarmCollector(seen), PetalsCollector(seen)))
            known = _rendered[seen.swarm, wanted] = _Rendered(version, time.monotonic(), text)
    return known.text
