"""The series of health.petals.dev under their old names, for dashboards that know those. New ones are in `monitor.metrics`.

Names and labels are as they were; HELP and TYPE are new. Three things differ on purpose: versions are a closed set, rates are
those of servers online, and there are no series of a snapshot that is too old.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.metrics import shown
from monitor.published import Watch
from monitor.serving import version_of
from swarm.snapshot import Model, PeerState, Server

PERCENTILES = (25, 50, 75, 90, 95)
VERSIONS = 10
"""Versions that are told apart; the others are `other`. A version is a text that anybody chooses."""
_VERSION = re.compile(r"\d{1,3}(\.(\d{1,3}|dev\d{1,3}|post\d{1,3}|rc\d{1,3})){0,3}")

_STATES = {
    "online": PeerState.ONLINE,
    "joining": PeerState.JOINING,
    "offline": PeerState.LEAVING,
    "unreachable": PeerState.UNREACHABLE,
}
_RATES = ("network", "inference", "forward")


class PetalsCollector(Collector):
    def __init__(self, seen: Watch) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        published = self._seen.published
        if published is None or not shown(self._seen):
            return
        yield GaugeMetricFamily("update_duration", "Seconds that the last good crawl took", value=published.crawl.duration_s)
        models = published.snapshot.models
        servers = [server for model in models for server in model.servers]
        yield from _pings(servers)
        yield GaugeMetricFamily(
            "servers_num_relay",
            "Servers that say that they use a relay",
            value=sum(bool(s.record.using_relay) for s in servers),
        )
        yield _versions(servers)
        yield from _counts(models)
        yield from _rates(models)


def _pings(servers: Sequence[Server]) -> Iterator[Metric]:
    reporting = [server.record.next_pings for server in servers if server.record.next_pings]
    pings = sorted(ping for answers in reporting for ping in answers.values() if math.isfinite(ping))
    total = sum(map(len, reporting))
    yield GaugeMetricFamily("servers_num_total", "Servers that report pings", value=len(reporting))
    if not pings:
        return
    yield GaugeMetricFamily("peers_per_srv", "Peers that a server pinged, on average", value=total / len(reporting))
    yield GaugeMetricFamily("pings_inf_share", "Share of pings without an answer", value=1 - len(pings) / total)
    family = GaugeMetricFamily("ping_pct", "Percentiles of the pings between servers, in seconds", labels=["pct"])
    for percent in PERCENTILES:
        family.add_metric([str(percent)], _percentile(pings, percent))
    yield family


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Between two values in proportion to how near each is."""
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _versions(servers: Sequence[Server]) -> Metric:
    counts = Counter(version for server in servers if (version := version_of(server)))
    known = Counter({version: count for version, count in counts.items() if _VERSION.fullmatch(version)})
    listed = dict(sorted(known.items(), key=lambda item: (-item[1], item[0]))[:VERSIONS])
    family = GaugeMetricFamily("server_version", "Servers by version", labels=["version_number"])
    for version, count in sorted(listed.items()):
        family.add_metric([version], count)
    family.add_metric(["other"], counts.total() - sum(listed.values()))
    return family


def _counts(models: Sequence[Model]) -> Iterator[Metric]:
    size = GaugeMetricFamily("n_blocks", "Blocks of a model", labels=["model"])
    number = GaugeMetricFamily("servers_num", "Servers of a model, in any state", labels=["model"])
    total = GaugeMetricFamily("blocks_total", "Blocks that a model's servers hold together", labels=["model"])
    lowest = GaugeMetricFamily("blocks_online_min", "Servers online on the block with the fewest", labels=["model"])
    by_state = GaugeMetricFamily("blocks", "Blocks that a model's servers hold together, by state", labels=["model", "state"])
    for model in models:
        size.add_metric([model.prefix], model.num_blocks)
        number.add_metric([model.prefix], len(model.servers))
        total.add_metric([model.prefix], sum(len(server.span) for server in model.servers))
        if not model.unread_blocks and not model.at_least:
            online = [server for server in model.servers if server.state is PeerState.ONLINE]
            lowest.add_metric([model.prefix], min(_by_block(model, [(server, 1.0) for server in online])))
        for word, state in _STATES.items():
            held = sum(len(server.span) for server in model.servers if server.state is state)
            by_state.add_metric([model.prefix, word], held)
    yield from (size, number, total, lowest, by_state)


def _rates(models: Sequence[Model]) -> Iterator[Metric]:
    average = GaugeMetricFamily(
        "rps_avg", "Tokens per second that a block's servers say to manage: mean", labels=["model", "rps"]
    )
    lowest = GaugeMetricFamily(
        "rps_min", "Tokens per second that a block's servers say to manage: least", labels=["model", "rps"]
    )
    for model in models:
        online = [server for server in model.servers if server.state is PeerState.ONLINE]
        for kind in _RATES:
            rates = _by_block(model, [(server, getattr(server.record, f"{kind}_rps") or 0.0) for server in online])
            average.add_metric([model.prefix, kind], sum(rates) / len(rates))
            lowest.add_metric([model.prefix, kind], min(rates))
    yield from (average, lowest)


def _by_block(model: Model, amounts: Sequence[tuple[Server, float]]) -> list[float]:
    """What all servers of a block have together. Summed in one order, since the figure must not depend on that of records."""
    sums = [0.0] * model.num_blocks
    for server, amount in sorted(amounts, key=lambda item: item[0].peer_id):
        for block in range(server.span.start, min(server.span.end, model.num_blocks)):
            sums[block] += amount
    return sums
