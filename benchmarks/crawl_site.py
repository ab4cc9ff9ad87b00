"""What a whole round of the crawl worker costs: reading the DHT, dialling every server, judging, and storing it in Postgres.

    python -m benchmarks.crawl_site [--servers 50 500] [--models 20] [--blocks 80] [--rounds 3] [--json FILE]

Real DHT nodes on loopback hold the records (as in benchmarks/crawl.py); the servers in them do not exist, so that every
dial fails: the dearest case for a crawl. A fresh process makes the rounds, as the crawl worker does, with a Postgres of its
own (fsync off, as in all tests). Memory is the process's peak, torch and hivemind included, and p2pd's beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.crawl import hold, placed


def hold_site(nodes: int, servers: int, models: int, blocks: int, pipe: Connection) -> None:
    """The servers' records, and the index in which a crawl finds the models."""
    from swarm.wire.keys import MODELS_KEY
    from swarm.wire.records import ModelRecord

    records = placed(servers, models, blocks)
    wire = ModelRecord(blocks, "https://huggingface.co/example/model").to_wire()
    records[MODELS_KEY] = [(f"model-{n}", wire) for n in range(models)]
    asyncio.run(hold(nodes, records, pipe))


def rounds_in_a_process(addresses: tuple[str, ...], rounds: int, database_url: str, redis_url: str, pipe: Connection) -> None:
    os.environ.update(DATABASE_URL=database_url, REDIS_URL=redis_url, DJANGO_SETTINGS_MODULE="coordinator.settings")
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from monitor import store
    from monitor.crawler import Crawler
    from monitor.models import Crawl, ServerRow
    from monitor.rounds import run

    crawler = Crawler(addresses)
    idle_mb = _own_peak_mb()
    stored: list[float] = []
    keep = store.store

    def timed(report: Any) -> Any:
        begun = time.perf_counter()
        kept = keep(report)
        stored.append(time.perf_counter() - begun)
        return kept

    store.store = timed
    seconds, cpu = [], []
    for _ in range(rounds):
        begun, used = time.perf_counter(), time.process_time()
        run("main", crawler)
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
    last = Crawl.objects.newest()
    pipe.send(
        {
            "seconds": [round(s, 2) for s in seconds],
            "store_s": [round(s, 2) for s in stored],
            "cpu_s": [round(s, 2) for s in cpu],
            "idle_mb": idle_mb,
            "peak_mb": _own_peak_mb(),
            "p2pd_peak_mb": _child_peak_mb("p2pd"),
            "servers_stored": ServerRow.objects.values("peer_id").distinct().count(),
            "outcome": last.outcome if last else "",
            "keys_unread": last.keys_unread if last else None,
        }
    )
    crawler.stop()


def _own_peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _child_peak_mb(name: str) -> int:
    """The peak of this process's children of that name, in the kernel's own words."""
    most = 0
    for entry in Path("/proc").glob("[0-9]*/status"):
        try:
            facts = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if name in facts["Name"] and int(facts["PPid"]) == os.getpid():
            most = max(most, int(facts["VmHWM"].split()[0]) // 1024)
    return most


def measure(servers: int, models: int, blocks: int, nodes: int, rounds: int) -> dict[str, Any]:
    from coordinator.launch.services import running

    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    holder = spawn.Process(target=hold_site, args=(nodes, servers, models, blocks, theirs), daemon=True)
    holder.start()
    try:
        addresses = ours.recv()
        with running() as (database_url, redis_url):
            here, there = spawn.Pipe()
            worker = spawn.Process(target=rounds_in_a_process, args=(addresses, rounds, database_url, redis_url, there))
            worker.start()
            result = here.recv()
            worker.join(60)
    finally:
        ours.send("stop")
        holder.join(30)
    expected = len({peer_id for listed in placed(servers, models, blocks).values() for peer_id, _ in listed})
    return {"servers": servers, "keys": models * blocks, "servers_announced": expected, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[50, 500])
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = [measure(servers, given.models, given.blocks, given.nodes, given.rounds) for servers in given.servers]
    for result in results:
        print("\n".join(f"{name:<18} {value}" for name, value in result.items()), "\n", flush=True)
    if len(results) > 1:
        first, last = results[0], results[-1]
        growth = min(last["seconds"]) / min(first["seconds"])
        print(f"{last['servers'] / first['servers']:g} times the servers: {growth:.2f} times the time")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
