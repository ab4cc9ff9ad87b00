"""What is forgotten, and when. Rerunnable. Minutes go with their partitions; this is for everything computed from them.

Nothing is, where no crawls bear the clock out: it may be ahead for a moment.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

from monitor.history.models import BlockDay, Incident, ModelDay, ModelHour, PeerDay, SwarmDay
from monitor.models import Crawl

SERVER_DAYS_KEPT = timedelta(days=92)
"""Ninety days are shown; 166 MB at 500 servers x 10 models."""
MODEL_DAYS_KEPT = timedelta(days=400)
"""More than a year of models, blocks and incidents: that costs a few megabytes."""

_UNUSED_PEERS = """
DELETE FROM monitor_peer WHERE NOT EXISTS (SELECT FROM monitor_peerday WHERE peer_id = monitor_peer.id)
  AND NOT EXISTS (SELECT FROM monitor_peersample WHERE peer_id = monitor_peer.id)
"""


def forget(now: datetime) -> None:
    if not Crawl.objects.all().bear_out(now):
        return
    today = now.astimezone(UTC).date()
    PeerDay.objects.filter(day__lt=today - SERVER_DAYS_KEPT).delete()
    for table in (ModelDay, BlockDay, SwarmDay):
        table.objects.filter(day__lt=today - MODEL_DAYS_KEPT).delete()
    ModelHour.objects.filter(hour__lt=now - MODEL_DAYS_KEPT).delete()
    Incident.objects.filter(ended_before__lt=now - MODEL_DAYS_KEPT).delete()
    with connection.cursor() as cursor:
        cursor.execute(_UNUSED_PEERS)
