"""What is forgotten, and when. Rerunnable. Minutes go with their partitions; this is for everything computed from them.

Nothing is, where no crawls bear the clock out: it may be ahead for a moment.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from monitor import swarms
from monitor.history.models import BlockDay, Incident, ModelDay, ModelHour, PeerDay, SwarmDay
from monitor.models import Crawl, ServerRow, WatchedModel

SERVER_DAYS_KEPT = timedelta(days=92)
"""Ninety days are shown; 166 MB at 500 servers x 10 models."""
MODEL_DAYS_KEPT = timedelta(days=400)
"""More than a year of models, blocks and incidents: that costs a few megabytes."""

NEVER_SERVED_KEPT = timedelta(days=7)
"""Anyone can name models without number. One that nobody has ever served leaves nothing worth keeping."""

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
    with transaction.atomic():
        # Locked, so that a crawl that sees one again right now either comes first, and it stays, or writes it anew.
        leaving = list(_forgotten_models(now).select_for_update().order_by("pk").values_list("pk", flat=True))
        WatchedModel.objects.filter(pk__in=leaving).delete()
    with connection.cursor() as cursor:
        cursor.execute(_UNUSED_PEERS)


def _forgotten_models(now: datetime) -> QuerySet[WatchedModel]:
    """Models that the swarm has not announced for long. What was decided about them goes by name, and stays."""
    old = Q(announced_at__lt=now - MODEL_DAYS_KEPT)
    junk = Q(announced_at__lt=now - NEVER_SERVED_KEPT, served_at__isnull=True)
    # A backup from before it was noted who was served says it by its hours alone.
    junk &= ~Q(Exists(ModelHour.objects.filter(model=OuterRef("pk"), servers_mean__gt=0)))
    junk &= ~Q(Exists(Incident.objects.filter(model=OuterRef("pk"))))
    listed = Q(pk__in=[])
    for swarm in swarms.configured():
        listed |= Q(swarm=swarm.name, prefix__in=swarm.look_for)
    return (
        WatchedModel.objects.filter(old | junk).exclude(listed).exclude(Exists(ServerRow.objects.filter(model=OuterRef("pk"))))
    )
