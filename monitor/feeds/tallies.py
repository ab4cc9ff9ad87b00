"""Crawls as Prometheus counts them: how many, how they ended, how long they took."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from monitor.feeds.models import CrawlTally
from monitor.feeds.publish import BUCKETS_S


class CrawlCollector(Collector):
    def __init__(self, swarm: str) -> None:
        self._swarm = swarm

    def collect(self) -> Iterator[Metric]:
        tally = CrawlTally.objects.filter(swarm=self._swarm).first() or CrawlTally(swarm=self._swarm)
        outcomes = CounterMetricFamily("swarm_crawls", "Crawls by how they ended", labels=["outcome"])
        for outcome in ("succeeded", "failed", "held"):
            outcomes.add_metric([outcome], getattr(tally, outcome))
        yield outcomes
        cumulated = accumulate(tally.buckets or [0] * (len(BUCKETS_S) + 1))
        bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
        durations = HistogramMetricFamily("swarm_crawl_duration_seconds", "How long crawls took")
        durations.add_metric([], buckets=list(zip(bounds, cumulated, strict=True)), sum_value=tally.seconds)
        yield durations
