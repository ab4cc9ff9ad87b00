"""What was said on the stream and may be said again to who was away, and what crawls add up to. Written by `publish` only."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from monitor.feeds.changes import Kind


class StreamHead(models.Model):
    """What the stream of one swarm has told last: the next events are the difference to it."""

    swarm = models.CharField(max_length=64, primary_key=True)
    told = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.swarm


class Event(models.Model):
    """Ids grow within a swarm, and become visible in their order: one writer at a time holds the swarm's head."""

    id = models.BigAutoField(primary_key=True)
    swarm = models.CharField(max_length=64)
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in Kind])
    at = models.DateTimeField()
    data = models.JSONField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["swarm", "id"], name="event_in_order")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in Kind]), name="event_kind_known")
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.kind}"


class CrawlTally(models.Model):
    """Crawls of one swarm ever counted. Crawls themselves are forgotten after a week, and a counter must not go back."""

    swarm = models.CharField(max_length=64, primary_key=True)
    counted_until = models.BigIntegerField(default=0, help_text="The newest crawl that is counted")
    succeeded = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    held = models.BigIntegerField(default=0)
    buckets = ArrayField(
        models.BigIntegerField(), default=list, help_text="Crawls by duration, not cumulated; the last has no end"
    )
    seconds = models.FloatField(default=0.0)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(seconds__gte=0), name="tally_of_time")]

    def __str__(self) -> str:
        return self.swarm
