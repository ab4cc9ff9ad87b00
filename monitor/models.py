"""Facts about one swarm as last crawled. What can be constrained is constrained here; nothing here reads a network or plans.

A server whose record is gone stays as `gone` for a while: a page that only forgets cannot say who left.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from swarm.coverage import Verdict
from swarm.snapshot import Outcome, PeerState

GONE_LISTED_FOR = timedelta(hours=1)
"""How long a server that left is still shown, with when it was last seen."""

KEPT_FOR = timedelta(days=7)
"""How long crawls and servers that left are kept in the database."""

MODEL_REMEMBERED_FOR = timedelta(hours=1)
"""A model that vanished from the index is still looked for this long: one lost record must not blank its page."""


class CrawlOutcome(models.TextChoices):
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class CrawlQuerySet(models.QuerySet["Crawl"]):
    def of(self, swarm: str) -> Self:
        return self.filter(swarm=swarm)

    def newest(self) -> Crawl | None:
        return self.order_by("-started_at", "-pk").first()

    def newest_success(self) -> Crawl | None:
        return self.filter(outcome=CrawlOutcome.SUCCEEDED).newest()

    def first_failure_after(self, moment: datetime | None) -> Crawl | None:
        failed = self.filter(outcome=CrawlOutcome.FAILED)
        return (failed.filter(started_at__gt=moment) if moment else failed).order_by("started_at", "pk").first()


class Crawl(models.Model):
    """One attempt to read the swarm. A failed one says why, and leaves what was known as it was."""

    swarm = models.CharField(max_length=64)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    observed_at = models.DateTimeField(null=True, help_text="The snapshot's own time; empty where the crawl failed")
    outcome = models.CharField(max_length=16, choices=CrawlOutcome)
    reason = models.TextField(blank=True, help_text="Why it failed")
    bootstraps = models.JSONField(default=dict, help_text="Bootstrap peer id: whether it answered")
    keys_unread = models.PositiveIntegerField(default=0, help_text="DHT keys that nobody answered for")
    dropped_counts = models.JSONField(default=dict, help_text="Records left out, by reason")
    dropped = models.JSONField(default=list, help_text="The first of them: key, subkey, reason, detail")

    objects = CrawlQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["swarm", "-started_at"], name="crawl_newest")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(outcome__in=CrawlOutcome.values), name="crawl_outcome_known"),
            models.CheckConstraint(condition=Q(finished_at__gte=F("started_at")), name="crawl_ends_after_start"),
            models.CheckConstraint(
                condition=Q(outcome="succeeded", reason="", observed_at__isnull=False)
                | (Q(outcome="failed", observed_at__isnull=True) & ~Q(reason="")),
                name="crawl_failed_with_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.swarm} {self.started_at:%Y-%m-%d %H:%M:%S} {self.outcome}"

    @property
    def duration_s(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()


class WatchedModelQuerySet(models.QuerySet["WatchedModel"]):
    def of(self, swarm: str) -> Self:
        return self.filter(swarm=swarm)

    def observed_in(self, crawl: Crawl) -> Self:
        return self.of(crawl.swarm).filter(observed_at=crawl.observed_at)

    def remembered(self, now: datetime) -> Self:
        return self.filter(announced_at__gte=now - MODEL_REMEMBERED_FOR)


class WatchedModel(models.Model):
    """A model that the swarm announces, or did until lately."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    num_blocks = models.PositiveIntegerField()
    repository = models.CharField(max_length=256, null=True)  # noqa: DJ001  (none and empty differ on the wire)
    unread_blocks = ArrayField(models.PositiveIntegerField(), default=list)
    announced_at = models.DateTimeField(help_text="When it last had a server or stood in the index")
    observed_at = models.DateTimeField(help_text="The time of the last snapshot that holds it")
    verdict = models.CharField(max_length=16, choices=[(verdict.value, verdict.value) for verdict in Verdict])
    verdict_since = models.DateTimeField()

    objects = WatchedModelQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["swarm", "prefix"], name="model_once_a_swarm"),
            models.CheckConstraint(condition=Q(num_blocks__gte=1), name="model_has_blocks"),
            models.CheckConstraint(condition=Q(verdict__in=[v.value for v in Verdict]), name="model_verdict_known"),
        ]

    def __str__(self) -> str:
        return self.prefix


class ServerRowQuerySet(models.QuerySet["ServerRow"]):
    def listed(self, now: datetime) -> Self:
        """Those in the swarm, and those that left lately."""
        return self.exclude(state=PeerState.GONE.value, state_since__lt=now - GONE_LISTED_FOR)


class ServerRow(models.Model):
    """One server of one model, as the last snapshot that held its record has it."""

    model = models.ForeignKey(WatchedModel, on_delete=models.CASCADE, related_name="servers")
    peer_id = models.CharField(max_length=64)
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField(help_text="Half-open: the first block that is not served")
    state = models.CharField(max_length=16, choices=[(state.value, state.value) for state in PeerState])
    state_since = models.DateTimeField()
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField(help_text="Last answer or renewed announcement, not our last write")
    observed_at = models.DateTimeField(help_text="The time of the last snapshot that holds its record")
    expires_at = models.DateTimeField(help_text="When its record runs out")
    announced = models.JSONField(help_text="Its record's fields; rates in tokens per second, pings in seconds")
    visited_at = models.DateTimeField(null=True)
    visit_outcome = models.CharField(max_length=24, blank=True, choices=[(o.value, o.value) for o in Outcome])
    visit_detail = models.TextField(blank=True)
    round_trip_s = models.FloatField(null=True)
    visit_version = models.CharField(max_length=64, null=True)  # noqa: DJ001  (not said is not empty)
    visit_cache_tokens_left = models.BigIntegerField(null=True)

    objects = ServerRowQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["model", "peer_id"], name="server_once_a_model"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="server_span_not_empty"),
            models.CheckConstraint(condition=Q(state__in=[s.value for s in PeerState]), name="server_state_known"),
            models.CheckConstraint(
                condition=Q(visited_at__isnull=True, visit_outcome="")
                | Q(visited_at__isnull=False, visit_outcome__in=[o.value for o in Outcome]),
                name="server_visit_whole",
            ),
            models.CheckConstraint(
                condition=Q(round_trip_s__isnull=True) | Q(round_trip_s__gte=0), name="server_round_trip_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.peer_id} {self.start}:{self.end} {self.state}"


# The history's tables, so that Django finds them. At the end: they point back at the ones above.
from monitor.history import models as history_models  # noqa: E402, F401
