"""A model's whole crowd asks one web process where to serve: who is answered, how fast, and what it costs.

    python -m benchmarks.hint_load [--followers 500] [--within 60 30 1] [--site FOLDER] [--json FILE]

A web process with a Postgres and a Redis of its own, a crawl stored every 30 s, a hole in the model. Each follower is a real
`HintClient` with a key, and asks once at a random moment of so many seconds: 60 is what a server does as a rule. Meanwhile
somebody reads pages. Who is told to come back does so when it was told to, and is counted again as "in the end".
The crowd runs on the same machine, and takes the larger part of it. `--site` is another working copy, to compare with.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import ssl
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks.api import HOST, _migrate
from blockserver.serving.hint_client import TIMEOUT_S, Busy, CoordinatorDown, HintClient
from coordinator.launch.ports import free_port
from coordinator.launch.services import running
from swarm.snapshot import Model, Server
from swarm.wire.hints import HintRequest, SpanDocument
from swarm.wire.identity import Signer

BLOCKS, HOLE, PREFIX = 80, 40, "tiny-hf"
CRAWL_EVERY_S = 30.0
READS = ("/", "/api/v1/needed")
READ_EVERY_S = 0.5
TRIES = 8


@dataclass
class Seen:
    """Of one run; seconds. `at_once` are those whose first question was answered."""

    at_once: list[float] = field(default_factory=list)
    in_the_end: int = 0
    told_to_wait: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    reads: list[float] = field(default_factory=list)
    reads_failed: Counter[str] = field(default_factory=Counter)
    leases: int = 0


def main() -> None:
    options = _options()
    with running() as (database_url, redis_url):
        os.environ.update(DATABASE_URL=database_url, REDIS_URL=redis_url, DJANGO_SETTINGS_MODULE="coordinator.settings")
        os.environ.update(SEPAL_CRAWL_INTERVAL_S="30", SEPAL_LOG_LEVEL="WARNING", SEPAL_SECRET_KEY="benchmark")
        # Each follower is to have an address of its own.
        os.environ["SEPAL_TRUSTED_PROXIES"] = HOST
        _migrate()
        figures = [_measured(options, within_s) for within_s in options.within]
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def _measured(options: argparse.Namespace, within_s: float) -> dict[str, Any]:
    model, signers = crowd(options.followers)
    _store(model)
    with _web(options.site, options.log) as (port, process):
        found, cpu_s = asyncio.run(_run(f"http://{HOST}:{port}", model, signers, within_s, process.pid))
    return _told(options.followers, within_s, found, cpu_s)


def crowd(followers: int) -> tuple[Model, dict[str, Signer]]:
    """Servers of 4 to 20 blocks, as rates are in the wild, none of them on the hole; with the key of each."""
    from tests.swarms import model, server

    dice = random.Random(1)
    signers = [Signer.from_seed(hashlib.sha256(f"p{n}".encode()).digest()) for n in range(followers)]
    servers: list[Server] = []
    while len(servers) < followers:
        size = dice.choice([4, 8, 12, 20])
        start = dice.randrange(0, BLOCKS - size + 1)
        if not start <= HOLE < start + size:
            named = server(f"p{len(servers)}", start, start + size, throughput=dice.lognormvariate(3, 1))
            servers.append(replace(named, peer_id=signers[len(servers)].peer_id))
    return model(BLOCKS, *servers), {signer.peer_id: signer for signer in signers}


def _store(seen: Model) -> None:
    from django.db import connections

    from monitor.crawl import CrawlReport
    from monitor.store import store
    from swarm.snapshot import Snapshot

    at = time.time()
    store(CrawlReport("main", at - 0.1, at + 0.1, Snapshot("main", at, (seen,)), indexed=frozenset([seen.prefix])))
    connections.close_all()


async def _run(site: str, model: Model, signers: dict[str, Signer], within_s: float, pid: int) -> tuple[Seen, float]:
    others = [asyncio.create_task(_crawl(model))]
    context = ssl.create_default_context()
    clients: dict[str, HintClient] = {}
    for number, server in enumerate(model.servers):
        client = await asyncio.to_thread(HintClient, site, signers[server.peer_id])
        await client._http.aclose()
        own = {"X-Forwarded-For": f"10.0.{number // 250}.{number % 250 + 1}"}
        client._http = httpx.AsyncClient(base_url=f"{site}/api/v1", timeout=TIMEOUT_S, verify=context, headers=own)
        client._nonce = await client._fetch_nonce()
        clients[server.peer_id] = client
    found = Seen()
    others += [asyncio.create_task(_read(site + path, found)) for path in READS]
    before = _cpu_s(pid)
    await asyncio.gather(*(_follow(server, clients[server.peer_id], within_s, found) for server in model.servers))
    cpu_s = _cpu_s(pid) - before
    for task in others:
        task.cancel()
    for client in clients.values():
        await client._http.aclose()
    return found, cpu_s


async def _follow(server: Server, client: HintClient, within_s: float, found: Seen) -> None:
    own = SpanDocument.of(server.span)
    size = len(server.span)
    question = HintRequest(peer=server.peer_id, model=PREFIX, num_blocks_max=size, num_blocks=size, current=own)
    await asyncio.sleep(random.random() * within_s)
    for attempt in range(TRIES):
        begun = time.perf_counter()
        try:
            answer = await client.ask(question)
        except Busy as busy:
            found.told_to_wait += attempt == 0
            await asyncio.sleep(busy.told_s * random.uniform(1.0, 2.0))
        except CoordinatorDown as error:
            found.failed[str(error).replace(client.coordinator, "the site")] += 1
            return
        else:
            if attempt == 0:
                found.at_once.append(time.perf_counter() - begun)
            found.in_the_end += 1
            found.leases += answer.lease is not None
            return


async def _read(address: str, found: Seen) -> None:
    async with httpx.AsyncClient(timeout=60.0) as http:
        while True:
            begun = time.perf_counter()
            try:
                response = await http.get(address)
                if response.status_code != httpx.codes.OK:
                    found.reads_failed[str(response.status_code)] += 1
            except httpx.HTTPError as error:
                found.reads_failed[type(error).__name__] += 1
            found.reads.append(time.perf_counter() - begun)
            await asyncio.sleep(READ_EVERY_S)


async def _crawl(model: Model) -> None:
    while True:
        await asyncio.to_thread(_store, model)
        await asyncio.sleep(CRAWL_EVERY_S)


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _web(site: Path, log: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [sys.executable, "-m", "coordinator.web", "--host", HOST, "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": str(site)}
    with log.open("ab") as said, subprocess.Popen(command, cwd=site, env=env, stderr=said) as process:
        try:
            for _ in range(300):
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"http://{HOST}:{port}/", timeout=10.0).status_code == httpx.codes.OK:
                        break
                time.sleep(0.2)
            yield port, process
        finally:
            process.terminate()
            process.wait(20)


def _told(followers: int, within_s: float, found: Seen, cpu_s: float) -> dict[str, Any]:
    ordered = sorted(found.at_once) or [float("nan")]
    reads = sorted(found.reads) or [float("nan")]
    figures: dict[str, Any] = {
        "followers": followers,
        "within_s": within_s,
        "answered_at_once": len(found.at_once) / followers,
        "told_to_come_back": found.told_to_wait / followers,
        "answered_in_the_end": found.in_the_end / followers,
        "failed": dict(found.failed),
        "median_s": statistics.median(ordered),
        "p99_s": ordered[int(len(ordered) * 0.99)],
        "leases": found.leases,
        "cpu_ms_a_question": 1000 * cpu_s / followers,
        "reads": len(found.reads),
        "reads_failed": dict(found.reads_failed),
        "read_median_s": statistics.median(reads),
        "read_slowest_s": reads[-1],
    }
    print(
        f"{followers} in {within_s:g} s: at once {figures['answered_at_once']:.1%}, told to come back"
        f" {figures['told_to_come_back']:.1%}, in the end {figures['answered_in_the_end']:.1%};"
        f" median {1000 * figures['median_s']:.0f} ms, p99 {1000 * figures['p99_s']:.0f} ms;"
        f" {figures['cpu_ms_a_question']:.0f} ms of the site's CPU each; {found.leases} leases;"
        f" {len(reads)} reads, median {1000 * figures['read_median_s']:.0f} ms, slowest {1000 * reads[-1]:.0f} ms,"
        f" failed {figures['reads_failed'] or 'none'}; no answer {figures['failed'] or 'none'}",
        flush=True,
    )
    return figures


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--followers", type=int, default=500)
    parser.add_argument("--within", type=float, nargs="+", default=[60.0, 30.0, 1.0], help="seconds in which each asks once")
    parser.add_argument("--site", type=Path, default=Path.cwd(), help="working copy whose web process is asked")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="for what the web process says")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.followers < 1 or min(given.within) <= 0:
        parser.error("--followers: at least one; --within: more than 0 seconds")
    if not (given.site / "coordinator").is_dir():
        parser.error(f"--site {given.site}: no working copy of this project")
    return given


if __name__ == "__main__":
    main()
