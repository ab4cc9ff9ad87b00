"""How many tasks wait for a worker: a queue that grows is a worker that died or cannot keep up."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from django.conf import settings
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import Redis
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

QUEUES = ("crawl", "default")
PATIENCE_S = 1.0
"""A scrape that hangs for the broker would lose everything else that it tells."""


class QueueCollector(Collector):
    def collect(self) -> Iterator[Metric]:
        """Without Redis there is no figure: unknown is not zero."""
        family = GaugeMetricFamily("swarm_tasks_waiting", "Tasks that no worker has taken yet, by queue", labels=["queue"])
        try:
            with Redis.from_url(
                settings.CELERY_BROKER_URL, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S
            ) as broker:
                for queue in QUEUES:
                    family.add_metric([queue], float(broker.llen(queue)))
        except RedisError as error:
            log.warning("no figure of waiting tasks: Redis does not answer (%s)", type(error).__name__)
            return
        yield family
