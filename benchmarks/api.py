"""What the API can answer: requests per second, p50 and p99, at 500 servers on 10 models while crawls are stored.

    python -m benchmarks.api [--servers 500] [--models 10] [--blocks 80] [--seconds 2] [--rounds 5] [--json FILE]

Beside it, under the same load in the same run, a Flask app that serves one prepared string (health.petals.dev's way): the same
state document, under Flask's own threaded server with kept connections, and under uvicorn, as we are. One process each. All of
them stand ready all the time and are asked in turn, in rounds; Postgres, Valkey and the writer of crawls run beside all of
them. The load comes from threads with blocking sockets that read each answer to its end: on two cores it has one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator.launch.ports import free_port
from coordinator.launch.services import running

HOST = "127.0.0.1"
PATHS = {
    "state JSON": "/api/v1/state",
    "blocks of a model": "/api/v1/models/model-0/blocks",
    "gaps": "/api/v1/gaps",
    "metrics": "/metrics",
}
GZIP = "Accept-Encoding: gzip\r\n"
READY_WITHIN_S = 60.0


def main() -> None:
    options = _options()
    if options.flask:
        serve_flask(*options.flask)
    elif options.write:
        write_crawls(options)
    else:
        report(options)


def report(options: argparse.Namespace) -> None:
    with running() as (database_url, redis_url), tempfile.TemporaryDirectory() as folder:
        os.environ.update(DATABASE_URL=database_url, REDIS_URL=redis_url, DJANGO_SETTINGS_MODULE="coordinator.settings")
        os.environ.update(SEPAL_CRAWL_INTERVAL_S="30", SEPAL_LOG_LEVEL="ERROR", SEPAL_SECRET_KEY="benchmark")
        _migrate()
        with _process(["-m", "benchmarks.api", "--write", *_sizes(options)]):
            figures = measure(options, Path(folder))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    prepared = folder / "state.json"
    with web("ours") as ours:
        prepared.write_bytes(_first_answer(ours, PATHS["state JSON"]))
        os.environ["PREPARED"] = str(prepared)
        with web("wsgi", "benchmarks.flask_state:app") as beside, web("flask", str(prepared)) as by_itself:
            state = PATHS["state JSON"]
            contestants = {
                "state JSON: ours": (ours, state, ""),
                "state JSON: Flask, uvicorn": (beside, state, ""),
                "state JSON: Flask, its own server": (by_itself, state, ""),
                "state JSON in gzip: ours": (ours, state, GZIP),
            }
            figures |= _in_turn(contestants, options)
        rest = {f"{name}: ours": (ours, path, "") for name, path in PATHS.items() if path != state}
        figures |= _in_turn(rest, options)
        figures["poller"] = poll(ours, options)
    return figures


def _in_turn(contestants: dict[str, tuple[int, str, str]], options: argparse.Namespace) -> dict[str, Any]:
    """Each for a while, round after round, so that what else the machine does meanwhile strikes all of them alike. Told are the
    middle rate of the rounds, and p50 and p99 of all requests: in some rounds a crawl is stored, and those are slower."""
    rounds: dict[str, list[Load]] = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, (port, path, extra) in contestants.items():
            rounds[name].append(load(port, path, options, extra))
    return {name: _told(name, together(found)) for name, found in rounds.items()}


def together(rounds: list[Load]) -> dict[str, Any]:
    ordered = sorted(took for one in rounds for took in one.took_s)
    return {
        "requests_per_second": statistics.median(len(one.took_s) / one.seconds for one in rounds),
        "p50_ms": 1000 * statistics.median(ordered),
        "p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
        "slowest_ms": 1000 * ordered[-1],
        "bytes": rounds[-1].size,
        "statuses": dict(sum((Counter(one.statuses) for one in rounds), Counter())),
    }


@dataclass
class Load:
    """Seconds of each request, and what came."""

    seconds: float
    took_s: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    size: int = 0


def load(port: int, path: str, options: argparse.Namespace, extra: str = "") -> Load:
    """As many requests as are answered, by several connections that each wait for their answer."""
    _first_answer(port, path)
    total = Load(options.seconds)
    lock, ends_at = threading.Lock(), time.monotonic() + options.seconds

    def ask() -> None:
        mine = Load(options.seconds)
        with Connection(port) as connection:
            while time.monotonic() < ends_at:
                started = time.perf_counter()
                status, mine.size, _ = connection.get(path, extra)
                mine.took_s.append(time.perf_counter() - started)
                mine.statuses[status] = mine.statuses.get(status, 0) + 1
        with lock:
            total.took_s += mine.took_s
            total.size = mine.size
            for status, count in mine.statuses.items():
                total.statuses[status] = total.statuses.get(status, 0) + count

    threads = [threading.Thread(target=ask) for _ in range(options.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total


def poll(port: int, options: argparse.Namespace) -> dict[str, Any]:
    """One poller a second who sends the tag that it has, over several crawls."""
    counted = {200: 0, 304: 0}
    tag, snapshots, ends_at = "", set(), time.monotonic() + options.poll_seconds
    with Connection(port) as connection:
        while time.monotonic() < ends_at:
            status, _, told = connection.get(PATHS["state JSON"], f"If-None-Match: {tag}\r\n" if tag else "")
            counted[status] += 1
            tag = told["etag"]
            snapshots.add(tag)
            time.sleep(1.0)
    share = counted[304] / sum(counted.values())
    repeated = sum(counted.values()) - len(snapshots)
    between = counted[304] / repeated if repeated else None
    print(f"{'poller, once a second':44} {share:>10.1%} of all polls are 304; {len(snapshots)} snapshots", flush=True)
    return {"polls": counted, "snapshots": len(snapshots), "share_304": share, "share_304_between_snapshots": between}


class Connection:
    """One kept connection; opened again where the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._room = bytearray(1 << 20)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket:
            self._socket.close()

    def get(self, path: str, extra: str = "") -> tuple[int, int, dict[str, str]]:
        """Status, bytes of the body, headers."""
        if self._socket is None:
            self._socket = socket.create_connection((HOST, self._port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{extra}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            part = self._socket.recv(65_536)
            if not part:
                raise ConnectionError("closed in the middle of an answer")
            head += part
        head, _, body = head.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(status_line.split()[1])
        if headers.get("transfer-encoding") == "chunked":
            size = self._chunks(self._socket, body)
        else:
            size = 0 if status == 304 else int(headers["content-length"])
            self._rest(self._socket, size - len(body))
        if headers.get("connection", "").lower() == "close":
            self._socket.close()
            self._socket = None
        return status, size, headers

    def _rest(self, connected: socket.socket, missing: int) -> None:
        while missing > 0:
            missing -= connected.recv_into(self._room, min(missing, len(self._room)))

    def _chunks(self, connected: socket.socket, read: bytes) -> int:
        """An answer whose length is not told in front; returns it."""
        size = 0
        while True:
            while b"\r\n" not in read:
                read += connected.recv(65_536)
            length, _, read = read.partition(b"\r\n")
            missing = int(length, 16) + 2 - len(read)
            size += int(length, 16)
            if missing > 0:
                self._rest(connected, missing)
                read = b""
            else:
                read = read[int(length, 16) + 2 :]
            if int(length, 16) == 0:
                return size


@contextlib.contextmanager
def web(server: str, application: str = "") -> Iterator[int]:
    port = free_port()
    command = {
        "ours": ["-m", "coordinator.web", "--host", HOST, "--port", str(port)],
        "wsgi": [
            *("-m", "uvicorn", "--interface", "wsgi", "--host", HOST, "--port", str(port), "--log-level", "error", application),
        ],
        "flask": ["-m", "benchmarks.api", "--flask", application, str(port)],
    }
    with _process(command[server]):
        _wait_for(port)
        yield port


@contextlib.contextmanager
def _process(arguments: list[str]) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_for(port: int) -> None:
    """Until it answers, whatever it answers, and until there is a snapshot to tell of."""
    give_up = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError, ValueError, KeyError):
            if json.loads(_first_answer(port, "/api/v1/state"))["model_reports"]:
                return
        time.sleep(0.2)
    raise SystemExit("the server does not come up")


def _first_answer(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}") as response:
        body: bytes = response.read()
        return body


def serve_flask(prepared: str, port: str) -> None:
    """As health.petals.dev does it, with connections kept: the string is made by somebody else."""
    from werkzeug.serving import WSGIRequestHandler

    os.environ["PREPARED"] = prepared
    from benchmarks.flask_state import app

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    WSGIRequestHandler.log = lambda *_, **__: None  # type: ignore[method-assign]
    app.run(HOST, int(port), threaded=True)


def write_crawls(options: argparse.Namespace) -> None:
    """Stores what the crawl worker would, one crawl after another, until it is ended."""
    import django

    django.setup()
    from monitor.store import store

    while True:
        began = time.time()
        store(_crawl(options, began))
        time.sleep(max(0.0, options.crawl_every - (time.time() - began)))


def _crawl(options: argparse.Namespace, at: float) -> Any:
    from monitor.crawl import CrawlReport
    from swarm.snapshot import Model, Outcome, PeerState, Server, Snapshot, Visit
    from swarm.wire.records import ServerRecord, ServerState
    from swarm.wire.spans import Span
    from tests.swarms import peer_id

    each = max(1, options.servers // options.models)

    def server(model: int, number: int) -> Server:
        start = number * 7 % max(1, options.blocks - 12)
        span = Span(start, min(options.blocks, start + 12))
        pings = {peer_id(f"{model}.{(number + step) % each}"): 0.01 * step for step in range(1, 6)}
        record = ServerRecord(
            ServerState.ONLINE, 300.0 + number, span, public_name=f"server {number}", version="2.3.0", network_rps=900.5,
            forward_rps=5_000.5, inference_rps=200.5, torch_dtype="bfloat16", quant_type="nf4", using_relay=False,
            cache_tokens_left=100_000, next_pings=pings,
        )  # fmt: skip
        name = peer_id(f"{model}.{number}")
        visit = Visit(name, at, Outcome.ANSWERED, "", 0.05, "2.3.0", 100_000 + int(at) % 1_000, span, via="direct")
        return Server(name, span, PeerState.ONLINE, record, at + 60, visit)

    models = tuple(
        Model(f"model-{n}", options.blocks, f"org/model-{n}", tuple(server(n, number) for number in range(each)))
        for n in range(options.models)
    )
    indexed = frozenset(model.prefix for model in models)
    return CrawlReport("main", at, at + 1, Snapshot("main", at, models), "", {peer_id("boot"): True}, 0, indexed)


def _migrate() -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connections

    from monitor.history import partitions
    from monitor.history.minutes import moment

    call_command("migrate", verbosity=0)
    partitions.maintain(moment(time.time()))
    connections.close_all()


def _told(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    rate, p50, p99, most = (figures[key] for key in ("requests_per_second", "p50_ms", "p99_ms", "slowest_ms"))
    strange = {status: count for status, count in figures["statuses"].items() if status != 200}
    print(
        f"{name:36} {rate:>7,.0f} /s   p50 {p50:>7.2f} ms   p99 {p99:>7.2f} ms   "
        f"at most {most:>5,.0f} ms   {figures['bytes']:>9,} bytes" + (f"   {strange}" if strange else ""),
        flush=True,
    )
    return figures


def _sizes(options: argparse.Namespace) -> list[str]:
    names = ("servers", "models", "blocks", "crawl_every")
    return [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=500, help="of all models together")
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load, for each figure in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--crawl-every", type=float, default=10.0, help="seconds between two crawls that are stored")
    parser.add_argument("--poll-seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--flask", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
