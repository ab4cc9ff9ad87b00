"""Prometheus' view of the swarm, collected from the database at each scrape. Labels are bounded: no peer and no name is one.

Series of models are left out while the snapshot is stale, so that an alert on absence fires and none on old figures does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.published import Standing, Watch, standings
from swarm.coverage import Verdict
from swarm.snapshot import PeerState

SHOWN_STATES = (PeerState.ONLINE, PeerState.JOINING, PeerState.LEAVING, PeerState.UNREACHABLE, PeerState.GONE)


class SwarmCollector(Collector):
    def __init__(self, seen: Watch) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        yield from _crawl_metrics(self._seen)
        published = self._seen.published
        if published is not None and not published.stale:
            found = standings(published)
            yield from _model_metrics(found)
            yield from _block_metrics(found)
            absent = {prefix: [s.state for s in servers] for prefix, servers in published.absent.items()}
            yield _servers(found, absent)


def _crawl_metrics(seen: Watch) -> Iterator[Metric]:
    last, published = seen.last_crawl, seen.published
    if published is not None:
        yield _gauge(
            "swarm_crawl_last_success_timestamp_seconds", "When the last good crawl read the swarm", published.snapshot.at
        )
    yield _gauge("swarm_stale", "1 where no crawl has succeeded for three intervals", float(not seen.sees))
    if last is None:
        return
    yield _gauge("swarm_crawl_ok", "1 where the last crawl succeeded", float(not last.failure))
    yield _gauge("swarm_crawl_duration_seconds", "How long the last crawl took", last.duration_s)
    yield _gauge("swarm_keys_unread", "DHT keys that nobody answered for in the last crawl", last.keys_unread)
    bootstraps = GaugeMetricFamily("swarm_bootstrap_peers", "Bootstrap peers by whether they answer", labels=["answers"])
    bootstraps.add_metric(["yes"], last.bootstraps_up)
    bootstraps.add_metric(["no"], len(last.bootstraps) - last.bootstraps_up)
    yield bootstraps
    dropped = GaugeMetricFamily("swarm_dropped_records", "Records left out of the last crawl, by reason", labels=["reason"])
    for reason, count in sorted(last.dropped.items()):
        dropped.add_metric([reason], count)
    yield dropped


def _model_metrics(found: Iterable[Standing]) -> Iterator[Metric]:
    complete = GaugeMetricFamily("swarm_model_complete", "1 where every block has an online server", labels=["model"])
    lowest = GaugeMetricFamily("swarm_model_min_redundancy", "Online servers of the block with the fewest", labels=["model"])
    for item in found:
        if item.verdict is not Verdict.UNKNOWN:
            complete.add_metric([item.model.prefix], float(item.verdict is not Verdict.BROKEN))
        if item.coverage.min_redundancy is not None:
            lowest.add_metric([item.model.prefix], item.coverage.min_redundancy)
    yield complete
    yield lowest


def _block_metrics(found: Iterable[Standing]) -> Iterator[Metric]:
    servers = GaugeMetricFamily("swarm_block_servers", "Servers of a block by state", labels=["model", "block", "state"])
    speed = GaugeMetricFamily(
        "swarm_block_throughput_tokens_per_second", "What a block's online servers say to manage", labels=["model", "block"]
    )
    for item in found:
        for block in item.coverage.blocks:
            where = [item.model.prefix, str(block.index)]
            if block.redundancy is not None:
                servers.add_metric([*where, "online"], block.redundancy)
                servers.add_metric([*where, "joining"], len(block.joining))
            if block.throughput is not None:
                speed.add_metric(where, block.throughput)
    yield servers
    yield speed


def _servers(found: Iterable[Standing], absent: dict[str, list[PeerState]]) -> Metric:
    family = GaugeMetricFamily("swarm_servers", "Servers of a model by state", labels=["model", "state"])
    for item in found:
        counts = Counter([*(server.state for server in item.model.servers), *absent.get(item.model.prefix, [])])
        for state in SHOWN_STATES:
            family.add_metric([item.model.prefix, state.value], counts[state])
    return family


def _gauge(name: str, explanation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, explanation, value=value)
