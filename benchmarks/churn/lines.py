"""The recording: one JSON object a line, in the order in which things happened. Seconds since the beginning.

Names are those of the plan: no address, peer id, host or path is written.
"""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

from monitor.crawl import CrawlReport
from monitor.privacy import without_addresses
from swarm.snapshot import Model

_PEER_ID = re.compile(r"\b(12D3KooW|Qm)[1-9A-HJ-NP-Za-km-z]+")
_PATH = re.compile(r"(?<!\w)/[^\s,()]+")


class Lines:
    """Written from two threads: what is done, and what is seen."""

    def __init__(self, path: Path, **about: Any) -> None:
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="ascii")
        self._began = time.time()
        self._write({"kind": "recording", **about})

    def since(self, moment: float | None = None) -> float:
        return round((time.time() if moment is None else moment) - self._began, 1)

    def event(self, what: str, who: str, span: Any = None) -> None:
        """`span`: where it stands from now on."""
        self._write({"kind": "event", "at": self.since(), "what": what, "who": who, **({"span": span} if span else {})})

    def crawl(self, report: CrawlReport) -> None:
        """A crawl as it was stored: `at` is when it read the DHT; the servers were visited between then and `ended`."""
        at = report.snapshot.at if report.snapshot is not None else report.finished_at
        line = {
            "kind": "crawl",
            "began": self.since(report.started_at),
            "at": self.since(at),
            "ended": self.since(report.finished_at),
        }
        vain = report.failure or report.held
        if vain:
            self._write({**line, "failed" if report.failure else "held": nameless(vain)})
        else:
            assert report.snapshot is not None
            self._write({**line, **_seen(report.snapshot.models)})

    def close(self) -> None:
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()


def nameless(reason: str) -> str:
    return _PATH.sub("(address)", _PEER_ID.sub("(peer)", without_addresses(reason)))


def _seen(models: tuple[Model, ...]) -> dict[str, Any]:
    """A swarm in which nobody announces the model yet has none; there is never more than one."""
    if not models:
        return {"model": None}
    (model,) = models
    servers = {who.record.public_name or "?": [who.span.start, who.span.end, who.state.value] for who in model.servers}
    unread = {"unread": sorted(model.unread_blocks)} if model.unread_blocks else {}
    return {"blocks": model.num_blocks, "servers": dict(sorted(servers.items())), **unread}
