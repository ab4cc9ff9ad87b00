"""What frozen peers cost a crawl: how long each of its stages takes beside a swarm in which all is well, in one run.

    python -m benchmarks.frozen [--cases one three servers bootstrap] [--nodes 8] [--crawls 2] [--json FILE]

Real DHT nodes on loopback, the first two of them bootstrap peers, the next three servers of one model. A crawler, as the site
has one, makes a crawl of them as they are; then the p2pds of some are stopped (SIGSTOP: connections stay open, and nothing
comes out of them), and it goes on; then they are let go on, and it makes one more. Every case has a swarm of its own. Stages
that run side by side each count in full, so that they may add up to more than the whole.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")

from hivemind.p2p import P2PContext, ServicerBase
from hivemind.proto import runtime_pb2

import monitor.crawler
from monitor.crawl import CrawlReport
from monitor.crawler import Crawler, NodeReader
from swarm.dht.background import BackgroundLoop, note_in_one_line
from swarm.dht.declare import declare_model, declare_server
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.snapshot import PeerState, Snapshot
from swarm.wire.codec import encode
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.loopback import frozen

BLOCKS = 24
BOOTSTRAPS, SERVERS = (0, 1), (2, 3, 4)
FEWEST_NODES = 8
LIFE_S = 3_600.0
CASES = {"well": (), "one": (5,), "three": (5, 6, 7), "servers": (3, 4), "bootstrap": (1,)}
"""By name which nodes are frozen."""
WORDS = {
    "well": "all is well",
    "one": "one frozen node",
    "three": "three frozen nodes",
    "servers": "two frozen servers, nodes as well",
    "bootstrap": "one frozen bootstrap peer of two",
}
STAGES = ("check_alive", "bootstrap_states", "canary", "rejoin", "read_index", "read_blocks", "visit", "visit_afresh", "routes")

Seconds = dict[str, float]


class TransformerConnectionHandler(ServicerBase):  # the name is part of the protocol
    async def rpc_info(self, request: runtime_pb2.ExpertUID, context: P2PContext) -> runtime_pb2.ExpertInfo:
        return runtime_pb2.ExpertInfo(serialized_info=encode({"version": "2.3.0", "cache_tokens_available": 4096}))


class Timed(NodeReader):
    """From when to when each stage ran; the visits together are one."""

    stages: dict[str, list[tuple[float, float]]] = defaultdict(list)


def _timed(stage: str) -> Any:
    async def run(self: Timed, *given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return await getattr(NodeReader, stage)(self, *given, **named)
        finally:
            self.stages[stage].append((began, time.perf_counter()))

    return run


for _stage in STAGES:
    setattr(Timed, _stage, _timed(_stage))


def covered(times: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of them ran."""
    total, until = 0.0, 0.0
    for began, ended in sorted(times):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


@contextlib.asynccontextmanager
async def swarm_of(count: int) -> AsyncIterator[list[Node]]:
    asyncio.get_running_loop().set_exception_handler(note_in_one_line)
    async with contextlib.AsyncExitStack() as stack:
        started: list[Node] = []
        for _ in range(count):
            known = [address for node in started[: len(BOOTSTRAPS)] for address in await node.addresses()]
            started.append(await start_node(NodeConfig(initial_peers=tuple(known))))
            stack.push_async_callback(started[-1].stop)
        for turn, number in enumerate(SERVERS):
            await serve(started[number], Span(BLOCKS // 3 * turn, BLOCKS // 3 * (turn + 1)))
        yield started


async def serve(node: Node, span: Span) -> None:
    await TransformerConnectionHandler().add_p2p_handlers(node.p2p)
    await declare_server(node, "m", span, ServerRecord(ServerState.ONLINE, 10.0, span), LIFE_S)
    await declare_model(node, "m", ModelRecord(BLOCKS, None), LIFE_S)


def crawl_once(crawler: Crawler, previous: Snapshot | None) -> tuple[Snapshot | None, dict[str, Any]]:
    Timed.stages.clear()
    began = time.perf_counter()
    report: CrawlReport | None = crawler.crawl("main", {"m": ModelRecord(BLOCKS, None)}, previous)
    took = time.perf_counter() - began
    assert report is not None, "nobody else uses this crawler"
    servers = [server for model in report.snapshot.models for server in model.servers] if report.snapshot else []
    return report.snapshot or previous, {
        "seconds": took,
        "stages": {stage: covered(times) for stage, times in Timed.stages.items()},
        "failure": report.failure,
        "servers": len(servers),
        "online": sum(server.state is PeerState.ONLINE for server in servers),
        "unread": report.keys_unread,
        "entrances": report.bootstraps_up,
    }


def run(case: str, count: int, crawls: int) -> list[dict[str, Any]]:
    """A warm crawl that does not count, those with some frozen, and one after they go on again."""
    loop = BackgroundLoop("swarm")
    context = swarm_of(count)
    nodes = loop.run(context.__aenter__(), None)
    crawler = Crawler(tuple(address for n in BOOTSTRAPS for address in loop.run(nodes[n].addresses(), None)))
    rows = []
    try:
        previous, _ = crawl_once(crawler, None)
        with frozen(*(nodes[number] for number in CASES[case])):
            for turn in range(crawls):
                previous, row = crawl_once(crawler, previous)
                rows.append({"case": case, "crawl": f"{turn + 1}.", **row})
        if CASES[case]:
            _, row = crawl_once(crawler, previous)
            rows.append({"case": case, "crawl": "after", **row})
    finally:
        crawler.stop()
        loop.run(context.__aexit__(None, None, None), None)
        loop.stop()
    return rows


def shown(rows: list[dict[str, Any]]) -> Iterator[str]:
    well = min(row["seconds"] for row in rows if row["case"] == "well")
    stages = [stage for stage in STAGES if any(stage in row["stages"] for row in rows)]
    yield f"{'':<36}{'crawl':>6}{'total s':>9}{'added s':>9}{'times':>7}  " + "".join(f"{s:>17}" for s in stages) + "  seen"
    for row in rows:
        took, parts = row["seconds"], row["stages"]
        seen = (
            row["failure"] or f"{row['online']}/{row['servers']} online, {row['unread']} unread, {row['entrances']} entrances"
        )
        yield (
            f"{WORDS[row['case']]:<36}{row['crawl']:>6}{took:>9.2f}{took - well:>9.2f}{took / well:>7.1f}  "
            + "".join(f"{parts.get(stage, 0.0):>17.2f}" for stage in stages)
            + f"  {seen}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), help=f"of {', '.join(CASES)}; well is always measured")
    parser.add_argument("--nodes", type=int, default=FEWEST_NODES)
    parser.add_argument("--crawls", type=int, default=2, help="with some frozen, one after another")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    unknown = [case for case in given.cases if case not in CASES]
    if unknown:
        parser.error(f"--cases: no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    if given.nodes < FEWEST_NODES or given.crawls < 1:
        parser.error(f"--nodes: at least {FEWEST_NODES}; --crawls: at least one")
    if given.json and not given.json.parent.is_dir():
        parser.error(f"{given.json.parent}: no such folder; make it, or name another file")
    monitor.crawler.NodeReader = Timed  # type: ignore[misc]
    rows: list[dict[str, Any]] = []
    for case in dict.fromkeys(["well", *given.cases]):
        rows += run(case, given.nodes, given.crawls)
    print("\n".join(shown(rows)))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
