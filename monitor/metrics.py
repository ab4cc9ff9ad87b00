"""Prometheus' view of the swarm, collected from the database at each scrape. Labels are bounded: no peer and no name is one.

A stale snapshot has no verdict: those series end with the third missed crawl, as on all pages. The counts beside them stay
until the fifth, and then vanish too, so that an alert on absence fires and none on old figures does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.published import CrawlFacts, Published, Standing, Watch, standings
from monitor.rates.facts import CANARY_COUNTS_S
from monitor.serving import FULL, QUARANTINED, cache_left_of, shown_state
from swarm.answers.judging import Finding
from swarm.answers.judging import Standing as AnswerStanding
from swarm.coverage import Verdict
from swarm.snapshot import PeerState

GONE_AFTER = 5
"""Missed crawls. What crawls themselves come to stays."""

SHOWN_STATES = (*(state.value for state in PeerState), FULL, QUARANTINED)


class SwarmCollector(Collector):
    def __init__(self, seen: Watch) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        yield from _crawl_metrics(self._seen)
        published = self._seen.published
        if published is not None and shown(self._seen):
            found = standings(published)
            yield from _model_metrics(found)
            yield _canaries(published)
            yield from _block_metrics(found)
            absent = {prefix: [shown_state(s) for s in servers] for prefix, servers in published.absent.items()}
            yield _servers(found, absent)
            yield _answers((item.model.prefix for item in found), published.answers)


def shown(seen: Watch) -> bool:
    """Whether series of models are."""
    return seen.published is not None and not seen.published.ahead_s and seen.published.age_s() <= GONE_AFTER * seen.interval_s


def _crawl_metrics(seen: Watch) -> Iterator[Metric]:
    last, published = seen.last_crawl, seen.published
    if published is not None:
        yield _gauge(
            "swarm_crawl_last_success_timestamp_seconds", "When the last good crawl read the swarm", published.snapshot.at
        )
    yield _gauge("swarm_stale", "1 where nothing that may be believed was seen lately", float(not seen.sees))
    yield _gauge("swarm_crawl_interval_seconds", "Time between two crawls, as configured", seen.interval_s)
    if last is None:
        return
    held = published is not None and bool(published.held)
    yield _gauge("swarm_held", "1 where what was crawled last is held back as hard to believe", float(held))
    yield _gauge("swarm_crawl_ok", "1 where the last crawl succeeded", float(not last.failure and not last.held))
    yield _gauge("swarm_crawl_last_duration_seconds", "How long the last crawl took", last.duration_s)
    yield _gauge("swarm_crawl_overran", "1 where the last crawl took longer than the time between two", float(seen.overrun))
    yield _gauge("swarm_split", "1 where the bootstrap peers do not know the same swarm", float(bool(last.split)))
    yield _addresses(last)
    yield _gauge("swarm_keys_unread", "DHT keys that nobody answered for in the last crawl", last.keys_unread)
    bootstraps = GaugeMetricFamily("swarm_bootstrap_peers", "Bootstrap peers by whether they answer", labels=["answers"])
    bootstraps.add_metric(["yes"], last.bootstraps_up)
    bootstraps.add_metric(["no"], len(last.bootstraps) - last.bootstraps_up)
    yield bootstraps
    dropped = GaugeMetricFamily("swarm_dropped_records", "Records left out of the last crawl, by reason", labels=["reason"])
    for reason, count in sorted(last.dropped.items()):
        dropped.add_metric([reason], count)
    yield dropped


def _addresses(last: CrawlFacts) -> Metric:
    family = GaugeMetricFamily(
        "swarm_bootstrap_addresses", "Bootstrap addresses by kind and by how far a query came", labels=["family", "step"]
    )
    for (kind, step), count in sorted(Counter((state.family, state.step) for state in last.addresses).items()):
        family.add_metric([kind, step], count)
    return family


def _model_metrics(found: Iterable[Standing]) -> Iterator[Metric]:
    complete = GaugeMetricFamily("swarm_model_complete", "1 where every block has an online server", labels=["model"])
    routable = GaugeMetricFamily("swarm_model_routable", "1 where a client finds a way with room for it", labels=["model"])
    conflicts = GaugeMetricFamily("swarm_conflicts", "Servers whose record contradicts what they answer", labels=["model"])
    lowest = GaugeMetricFamily("swarm_model_min_redundancy", "Online servers of the block with the fewest", labels=["model"])
    for item in found:
        if item.verdict is not Verdict.UNKNOWN:
            complete.add_metric([item.model.prefix], float(item.verdict is not Verdict.BROKEN))
        if not item.route.unknown and not item.stale:
            routable.add_metric([item.model.prefix], float(item.route.exists))
        conflicts.add_metric([item.model.prefix], sum(bool(server.conflict) for server in item.model.servers))
        if item.coverage.min_redundancy is not None and not item.stale:
            lowest.add_metric([item.model.prefix], item.coverage.min_redundancy)
    yield from (complete, lowest, routable, conflicts, _verdicts(found), _room(found))


def _canaries(published: Published) -> Metric:
    family = GaugeMetricFamily(
        "swarm_canary_ok", "1 where the last text that was generated to try the model was the expected one", labels=["model"]
    )
    for prefix, canary in sorted(published.canaries.items()):
        if published.read_at - canary.at <= CANARY_COUNTS_S:
            family.add_metric([prefix], float(canary.outcome == "expected"))
    return family


def _verdicts(found: Iterable[Standing]) -> Metric:
    family = GaugeMetricFamily("swarm_models", "Models by what is to be said of them", labels=["verdict"])
    counts = Counter(item.verdict for item in found)
    for verdict in Verdict:
        family.add_metric([verdict.value], counts[verdict])
    return family


def _room(found: Iterable[Standing]) -> Metric:
    family = GaugeMetricFamily(
        "swarm_model_min_cache_tokens",
        "Cache left on the block with the least, in tokens, where servers say it",
        labels=["model"],
    )
    for item in found:
        left = [0] * item.model.num_blocks
        said = [False] * item.model.num_blocks
        for server in item.model.servers:
            cache = cache_left_of(server)
            if server.state is PeerState.ONLINE and cache is not None:
                for block in range(server.span.start, min(server.span.end, item.model.num_blocks)):
                    left[block] += cache // (2 * len(server.span))
                    said[block] = True
        if all(said) and not item.stale:
            family.add_metric([item.model.prefix], min(left))
    return family


def _block_metrics(found: Iterable[Standing]) -> Iterator[Metric]:
    servers = GaugeMetricFamily("swarm_block_servers", "Servers of a block by state", labels=["model", "block", "state"])
    speed = GaugeMetricFamily(
        "swarm_block_throughput_tokens_per_second",
        "What a block's online servers manage together, each as far as it is believed",
        labels=["model", "block"],
    )
    said = GaugeMetricFamily(
        "swarm_block_reported_throughput_tokens_per_second", "The same as they report it", labels=["model", "block"]
    )
    for item in found:
        for block in item.coverage.blocks:
            where = [item.model.prefix, str(block.index)]
            if block.redundancy is not None:
                servers.add_metric([*where, "online"], block.redundancy)
                servers.add_metric([*where, "joining"], len(block.joining))
            if block.throughput is not None:
                speed.add_metric(where, block.throughput)
            if block.reported is not None:
                said.add_metric(where, block.reported)
    yield servers
    yield speed
    yield said


def _answers(prefixes: Iterable[str], answers: Mapping[tuple[str, str], Finding]) -> Metric:
    family = GaugeMetricFamily(
        "swarm_answers", "Servers by what their answers to small forward passes come to", labels=["model", "standing"]
    )
    counts = Counter((prefix, finding.standing) for (prefix, _), finding in answers.items())
    for prefix in prefixes:
        for standing in AnswerStanding:
            family.add_metric([prefix, standing.value], counts[prefix, standing])
    return family


def _servers(found: Iterable[Standing], absent: dict[str, list[str]]) -> Metric:
    family = GaugeMetricFamily("swarm_servers", "Servers of a model by state", labels=["model", "state"])
    for item in found:
        counts = Counter([*(shown_state(server) for server in item.model.servers), *absent.get(item.model.prefix, [])])
        for state in SHOWN_STATES:
            family.add_metric([item.model.prefix, state], counts[state])
    return family


def _gauge(name: str, explanation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, explanation, value=value)
