"""What the history costs: bytes a day and in ninety days, seconds a crawl and a roll-up, milliseconds a question.

    python -m benchmarks.history [--peers 500] [--models 10] [--blocks 80] [--crawls 8] [--days 90] [--json FILE]

A Postgres of its own is started and removed. Crawls are stored as the crawl worker stores them; the rest of the hour is
copied from them, an hour is rolled up, and its rows are copied to the other days. Bytes a day are those of an hour times 24;
everything else is measured at full size. Durable writes (fsync) are off, as in all tests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from coordinator.launch.services import running

START = 1_790_000_000 // 86_400 * 86_400 + 12 * 3_600
MINUTES = 60


def main() -> None:
    options = _options()
    with running() as (database_url, redis_url):
        os.environ.update(DATABASE_URL=database_url, REDIS_URL=redis_url, DJANGO_SETTINGS_MODULE="coordinator.settings")
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        figures = measure(options)
    for name, value in figures.items():
        print(f"{name:44} {value:>14,.3f}" if isinstance(value, float) else f"{name:44} {value:>14,}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    from monitor.history import partitions, rollups, uptime
    from monitor.history.minutes import moment
    from monitor.models import WatchedModel

    partitions.maintain(moment(START))
    figures: dict[str, Any] = {"peers": options.peers, "models": options.models, "blocks": options.blocks}
    figures |= _crawls(options)
    _fill_hour(options.crawls)
    hour = _size("monitor_peersample") + _size("monitor_modelminute")
    figures["samples: bytes a row"] = _size("monitor_peersample") / _count("monitor_peersample")
    figures["minutes: MB a day (an hour x 24)"] = hour * 24 / 1e6
    figures["minutes: MB in the 7 days kept"] = hour * 24 * partitions.KEPT / 1e6
    figures["roll-up of a full hour, s"] = _seconds(lambda: rollups.roll_up_hour(moment(START)))
    figures["the same again, s"] = _seconds(lambda: rollups.roll_up_hour(moment(START)))
    _copy_days(options.days)
    days = ("monitor_peerday", "monitor_modelday", "monitor_modelhour", "monitor_blockday", "monitor_peer")
    for table in days:
        figures[f"{table}: MB in {options.days} days"] = _size(table) / 1e6
    figures[f"days: MB in {options.days} days"] = sum(map(_size, days)) / 1e6
    model = WatchedModel.objects.order_by("pk").first()
    assert model is not None
    now, peer = float(START + MINUTES * 60), _a_peer()
    figures["uptime of one peer, 90 days, ms"] = _median_ms(lambda: uptime.peer_uptime(model.pk, peer, now))
    figures["days of all models, 90 days, ms"] = _median_ms(lambda: uptime.model_days("main", now))
    figures["uptime of every block of a model, 90 days, ms"] = _median_ms(
        lambda: uptime.block_tallies(model.pk, model.num_blocks, now)
    )
    return figures


def _crawls(options: argparse.Namespace) -> dict[str, float]:
    from monitor import store
    from monitor.history.record import record

    spent: list[float] = []

    def timed(*given: Any) -> None:
        begun = time.perf_counter()
        record(*given)
        spent.append(time.perf_counter() - begun)

    with mock.patch.object(store, "record", timed):
        whole = [_seconds(lambda n=number: store.store(_report(options, n))) for number in range(options.crawls)]  # type: ignore[misc]
    return {
        "history's part of a stored crawl, s (median)": statistics.median(spent[1:]),
        "storing a crawl, all of it, s (median)": statistics.median(whole[1:]),
    }


def _report(options: argparse.Namespace, number: int) -> Any:
    from monitor.crawl import CrawlReport
    from swarm.snapshot import Model, Outcome, PeerState, Server, Snapshot, Visit
    from swarm.wire.records import ServerRecord, ServerState
    from swarm.wire.spans import Span

    at = float(START + 60 * number)

    def server(model: int, peer: int) -> Server:
        start = (peer * 7) % (options.blocks - 10)
        span, up = Span(start, start + 10), (peer + number) % 50 != 0
        record = ServerRecord(ServerState.ONLINE, 10.0 + peer, span, public_name=f"peer {peer}")
        name = f"12D3KooW{model:04}{peer:040}"
        cache = (8_000 + peer) * 2 * 10 if up else None
        outcome = Outcome.ANSWERED if up else Outcome.TIMEOUT
        visit = Visit(name, at, outcome, "", 0.1 if up else None, cache_tokens_left=cache)
        return Server(name, span, PeerState.ONLINE if up else PeerState.UNREACHABLE, record, at + 60, visit)

    models = tuple(
        Model(f"model-{m}", options.blocks, None, tuple(server(m, p) for p in range(options.peers)))
        for m in range(options.models)
    )
    return CrawlReport("main", at, at + 1, Snapshot("main", at, models), "", {}, 0, frozenset(m.prefix for m in models))


def _fill_hour(crawls: int) -> None:
    for table in ("monitor_peersample", "monitor_modelminute"):
        columns = _columns(table)
        _run(
            f"INSERT INTO {table} (ts, {columns}) SELECT ts + step * interval '{crawls} minutes', {columns}"
            f" FROM {table}, generate_series(1, {MINUTES // crawls}) AS step"
            f" WHERE ts + step * interval '{crawls} minutes' < to_timestamp({START + MINUTES * 60})"
        )


def _copy_days(days: int) -> None:
    for table, when in (("peerday", "day"), ("modelday", "day"), ("blockday", "day"), ("modelhour", "hour")):
        columns, step = _columns(f"monitor_{table}", when), "back" if when == "day" else "back * interval '1 hour'"
        count = days - 1 if when == "day" else days * 24 - 1
        _run(
            f"INSERT INTO monitor_{table} ({when}, {columns}) SELECT {when} - {step}, {columns}"
            f" FROM monitor_{table}, generate_series(1, {count}) AS back"
        )
    # As a day looks when it is over: almost every minute, and every hour's throughput and cache.
    _run("UPDATE monitor_peerday SET up = ~(up & ~up), unknown = NULL, throughput = array_fill(12.5::real, ARRAY[24])")
    _run("UPDATE monitor_peerday SET cache_mean = array_fill(8000, ARRAY[24]), cache_least = array_fill(7000, ARRAY[24])")
    _run("UPDATE monitor_modelday SET watched = ~(watched & ~watched)")
    _run("VACUUM FULL ANALYZE")


def _columns(table: str, without: str = "ts") -> str:
    from monitor.history.backup import columns_of

    return ", ".join(f'"{name}"' for name in columns_of(table) if name != without)


def _run(statement: str) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)


def _one(question: str, *given: str | int) -> Any:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(question, given)
        return cursor.fetchone()[0]


def _size(table: str) -> int:
    """With its indexes, and all of its partitions."""
    own = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(%s::regclass)"
    return int(_one(own, table) or _one("SELECT pg_total_relation_size(%s::regclass)", table))


def _count(table: str) -> int:
    return int(_one(f"SELECT count(*) FROM {table}"))


def _a_peer() -> str:
    return str(
        _one("SELECT peer_id FROM monitor_peer WHERE id IN (SELECT peer_id FROM monitor_peersample) ORDER BY id LIMIT 1")
    )


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _median_ms(work: Callable[[], object], times: int = 25) -> float:
    work()
    return statistics.median(_seconds(work) for _ in range(times)) * 1e3


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=500)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--crawls", type=int, default=8)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
