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

SNAPSHOTS_KEPT_FOR = timedelta(days=1)
"""How long whole snapshots can be read by their id: 2,880 of them at a check each half minute, about 21 kB each at 500
servers. What they come to in minutes and days is kept longer (`monitor.history`)."""

CLOCK_JUMPS = timedelta(days=2)
CLOCK_PROVEN_AFTER = timedelta(hours=1)
"""What cannot be undone is done by a clock under which crawls have been stored for an hour. One that is ahead for a while would
have everything forgotten; after a long pause an hour more does not matter."""

MODEL_REMEMBERED_FOR = timedelta(hours=1)
"""A model that vanished from the index is still looked for this long: one lost record must not blank its page."""


class CrawlOutcome(models.TextChoices):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    HELD = "held"


class CrawlQuerySet(models.QuerySet["Crawl"]):
    def of(self, swarm: str) -> Self:
        return self.filter(swarm=swarm)

    def newest(self) -> Crawl | None:
        """The one that was stored last, which tables hold. Not the one that began last: clocks are set back."""
        return self.order_by("-pk").first()

    def newest_success(self) -> Crawl | None:
        return self.filter(outcome=CrawlOutcome.SUCCEEDED).newest()

    def bear_out(self, now: datetime) -> bool:
        """Whether a crawl was stored lately, but not only just now: then nothing that is old by this clock need be kept."""
        return self.filter(started_at__gt=now - CLOCK_JUMPS, started_at__lte=now - CLOCK_PROVEN_AFTER).exists()

    def without_result_after(self, crawl: Crawl | None) -> Self:
        """Crawls since that one that published nothing: failed or held back."""
        vain = self.exclude(outcome=CrawlOutcome.SUCCEEDED)
        return vain.filter(pk__gt=crawl.pk) if crawl else vain


class Crawl(models.Model):
    """One attempt to read the swarm. One that failed, or whose result was not believed, says why, and leaves what was known."""

    swarm = models.CharField(max_length=64)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    observed_at = models.DateTimeField(null=True, help_text="The snapshot's own time; empty where the crawl failed")
    outcome = models.CharField(max_length=16, choices=CrawlOutcome)
    reason = models.TextField(blank=True, help_text="Why it failed, or why its result was held back")
    suspicion = models.CharField(max_length=16, blank=True, help_text="The kind of doubt that held its result back")
    lost = models.JSONField(default=list, help_text="Servers whose loss is in doubt: model prefix and peer id")
    confirmed = models.TextField(blank=True, help_text="How a doubtful result was confirmed before it was published")
    bootstraps = models.JSONField(default=dict, help_text="Bootstrap peer id: whether it answered")
    addresses = models.JSONField(default=list, help_text="Bootstrap addresses: peer, family, how far a query through it came")
    split = models.TextField(blank=True, help_text="Bootstrap peers that do not know the same swarm")
    keys_unread = models.PositiveIntegerField(default=0, help_text="DHT keys that nobody answered for")
    dropped_counts = models.JSONField(default=dict, help_text="Records left out, by reason")
    dropped = models.JSONField(default=list, help_text="The first of them: key, subkey, reason, detail")

    objects = CrawlQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["swarm", "-started_at"], name="crawl_newest"),
            models.Index(fields=["swarm", "outcome", "-id"], name="crawl_newest_outcome"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(outcome__in=CrawlOutcome.values), name="crawl_outcome_known"),
            models.CheckConstraint(condition=Q(finished_at__gte=F("started_at")), name="crawl_ends_after_start"),
            models.CheckConstraint(
                condition=Q(outcome="succeeded", reason="", observed_at__isnull=False)
                | (Q(outcome__in=["failed", "held"], observed_at__isnull=True) & ~Q(reason="")),
                name="crawl_failed_with_reason",
            ),
            models.CheckConstraint(condition=Q(outcome="held") ^ Q(suspicion=""), name="crawl_held_with_suspicion"),
        ]

    def __str__(self) -> str:
        return f"{self.swarm} {self.started_at:%Y-%m-%d %H:%M:%S} {self.outcome}"

    @property
    def duration_s(self) -> float:
        return (self.finished_at - self.started_at).total_seconds()


class KeptSnapshot(models.Model):
    """A snapshot as it was published, for whoever asks for it by its id (`monitor.archive`)."""

    crawl = models.OneToOneField(Crawl, on_delete=models.CASCADE, primary_key=True, related_name="kept_snapshot")
    document = models.BinaryField(help_text="JSON, compressed by zlib")

    def __str__(self) -> str:
        return f"snapshot {self.pk}"


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
    served_at = models.DateTimeField(null=True, help_text="When a server of it was last online; empty: never yet")
    verdict = models.CharField(max_length=16, choices=[(verdict.value, verdict.value) for verdict in Verdict])
    verdict_since = models.DateTimeField()
    conflict = models.TextField(blank=True, help_text="What contradicts it in the index of models")
    # True until a crawl knows better: a size whose origin nobody knows proves nothing.
    at_least = models.BooleanField(default=True, help_text="The size is what was seen; the model may have more blocks")

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
    here_since = models.DateTimeField(help_text="Since when it is here without a break: it begins anew after it was gone")
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
    visit_start = models.PositiveIntegerField(null=True, help_text="The span whose edges it was asked for")
    visit_end = models.PositiveIntegerField(null=True)
    visit_addresses = ArrayField(models.TextField(), default=list, help_text="Addresses that were tried, without their hosts")
    visit_via = models.CharField(max_length=16, blank=True, help_text="direct or relay, where that is known")
    visit_network = models.CharField(max_length=16, blank=True, default="", help_text="Digest of the network it sits in")
    conflict = models.TextField(blank=True, help_text="Where its own answer and its record contradict each other")
    borne_out = models.PositiveIntegerField(
        null=True, help_text="The most blocks of the model that it has answered for, up to the last of them"
    )
    skew_s = models.FloatField(null=True, help_text="How far its clock seems to run ahead of ours; negative: behind")

    objects = ServerRowQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["model", "peer_id"], name="server_once_a_model"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="server_span_not_empty"),
            models.CheckConstraint(condition=Q(here_since__gte=F("first_seen")), name="server_here_after_first_seen"),
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


# The tables of history and rates, so that Django finds them. At the end: the history's point back at the ones above.
from monitor.history import models as history_models  # noqa: E402, F401
from monitor.rates import models as rate_models  # noqa: E402, F401
