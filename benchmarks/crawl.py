"""How long it takes to read a swarm out of the DHT, in bulk and key by key, and whether anything is missed.

Real DHT nodes in a process of their own hold the records, each under the five nodes nearest to its key, as the DHT itself
places them. The reader joins them over loopback and reads every block key of every model twice: as the monitor does
(`swarm.dht.reading`), and the plain way (hivemind's `get_many`, 32 workers). Prints a table, and JSON with --json.

    python -m benchmarks.crawl --servers 50 500 --models 20 --blocks 80
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import platform
import random
import resource
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

SPAN = 20
"""Blocks of one server."""
LIFE_S = 3_600.0
Placed = set[tuple[str, str]]
"""Key and peer id of each record."""


def placed(servers: int, models: int, blocks: int) -> dict[str, list[tuple[str, Any]]]:
    """By key its records: who writes what. The same every time."""
    from swarm.wire.records import ServerRecord, ServerState
    from swarm.wire.spans import Span
    from tests.swarms import peer_id

    made: dict[str, list[tuple[str, Any]]] = {}
    dice = random.Random(4)
    names = [peer_id(f"server {n}") for n in range(servers)]
    for n, name in enumerate(names):
        start = dice.randrange(max(1, blocks - SPAN + 1))
        span = Span(start, min(blocks, start + SPAN))
        pings = {dice.choice(names): dice.random() for _ in range(5)}
        record = ServerRecord(
            ServerState.ONLINE, 10.0 + n, span, f"server {n}", "2.3.0.dev2", 100.5, 200.5, 30.5, (), "bfloat16", "nf4", False,
            1_179_648, pings,
        )  # fmt: skip
        for block in span:
            made.setdefault(f"model-{n % models}.{block}", []).append((name, record.to_wire()))
    return made


async def hold(nodes: int, records: dict[str, list[tuple[str, Any]]], pipe: Connection) -> None:
    from hivemind.dht.routing import DHTID
    from hivemind.utils import get_dht_time

    from swarm.dht.node import NodeConfig, start_node
    from swarm.wire.codec import encode

    started = [await start_node(NodeConfig())]
    for _ in range(nodes - 1):
        started.append(await start_node(NodeConfig(initial_peers=await started[0].addresses())))
    expires_at = get_dht_time() + LIFE_S
    for key, listed in records.items():
        dht_id = DHTID.generate(key)
        nearest = sorted(started, key=lambda node: dht_id.xor_distance(node.dht.node_id))[:5]
        for peer_id, value in listed:
            packed = encode(value)
            for node in nearest:
                node.dht.protocol.storage.store(dht_id, packed, expires_at, subkey=peer_id)
    pipe.send(await started[0].addresses())
    await asyncio.to_thread(pipe.recv)
    for node in started:
        await node.stop()


def hold_in_a_process(nodes: int, servers: int, models: int, blocks: int, pipe: Connection) -> None:
    asyncio.run(hold(nodes, placed(servers, models, blocks), pipe))


async def read_in_bulk(node: Any, models: dict[str, int]) -> Placed:
    from swarm.dht.reading import read_blocks

    readings = await read_blocks(node, models, timeout_s=300)
    return {(key, str(e.subkey)) for reading in readings.values() for key, listed in reading.entries.items() for e in listed}


async def read_plainly(node: Any, models: dict[str, int]) -> Placed:
    keys = [f"{prefix}.{block}" for prefix, count in models.items() for block in range(count)]
    found = await node.dht.get_many(keys, float("inf"), num_workers=32)
    return {(key, subkey) for key, value in found.items() if value is not None for subkey in value.value}


async def measure(addresses: tuple[str, ...], models: dict[str, int], truth: Placed, plainly: bool) -> dict[str, Any]:
    from swarm.dht.node import NodeConfig, start_node

    ways = {"bulk": read_in_bulk, **({"plain": read_plainly} if plainly else {})}
    result: dict[str, Any] = {}
    for way, read in ways.items():
        node = await start_node(NodeConfig(initial_peers=addresses, client_mode=True))
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        found = await read(node, models)
        took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
        await node.stop()
        result[way] = {
            "seconds": round(took, 2),
            "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
            "peak_mb": round(after.ru_maxrss / 1024),
            "missed": len(truth - found),
            "invented": len(found - truth),
        }
    if plainly:
        result["ratio"] = round(result["plain"]["seconds"] / result["bulk"]["seconds"], 1)
    return result


def run(servers: int, models: int, blocks: int, nodes: int, plainly: bool) -> dict[str, Any]:
    records = placed(servers, models, blocks)
    truth = {(key, peer_id) for key, listed in records.items() for peer_id, _ in listed}
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    holder = multiprocessing.get_context("spawn").Process(
        target=hold_in_a_process, args=(nodes, servers, models, blocks, theirs), daemon=True
    )
    holder.start()
    try:
        sizes = {f"model-{n}": blocks for n in range(models)}
        result = asyncio.run(measure(ours.recv(), sizes, truth, plainly))
    finally:
        ours.send("stop")
        holder.join(30)
    return {"servers": servers, "models": models, "keys": models * blocks, "records": len(truth), "nodes": nodes, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--nodes", type=int, default=8, help="DHT nodes that hold the records")
    parser.add_argument("--bulk-only", action="store_true", help="leave out the plain way, which takes long")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    results = [run(servers, given.models, given.blocks, given.nodes, not given.bulk_only) for servers in given.servers]
    if given.json:
        json.dump(
            {"machine": f"{platform.machine()}, {multiprocessing.cpu_count()} cores", "results": results}, sys.stdout, indent=1
        )
        return
    print(f"{'servers':>8}{'keys':>7}{'records':>9}   {'way':6}{'seconds':>9}{'CPU s':>8}{'peak MB':>9}", end="")
    print(f"{'missed':>8}{'invented':>10}")
    for result in results:
        for way in ("bulk", "plain"):
            if way in result:
                row = result[way]
                print(
                    f"{result['servers']:>8}{result['keys']:>7}{result['records']:>9}   {way:6}{row['seconds']:>9}"
                    f"{row['cpu_seconds']:>8}{row['peak_mb']:>9}{row['missed']:>8}{row['invented']:>10}"
                )
        if "ratio" in result:
            print(f"{'':>27}{result['ratio']} times faster")


if __name__ == "__main__":
    main()
