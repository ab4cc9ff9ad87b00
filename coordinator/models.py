"""Leases: hints given, what became of them, and who asks. Facts and constraints only; the rules are in `coordinator.hints`.

All of it is soft state: after a restart, or without these tables, the DHT is the truth.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import IntegerRangeField, RangeOperators
from django.db import models
from django.db.models import F, Q

from swarm.wire.spans import Span


class Phase(models.TextChoices):
    OFFERED = "offered"
    ACCEPTED = "accepted"
    DONE = "done"
    DECLINED = "declined"
    STALE = "stale"
    EXPIRED = "expired"


OPEN = (Phase.OFFERED, Phase.ACCEPTED)


class Outcome(models.TextChoices):
    """What a hint came to, as people are told it."""

    OPEN = "open"
    FOLLOWED = "followed"
    DECLINED = "declined"
    IGNORED = "ignored"
    BROKEN_OFF = "broken off"
    STALE = "stale"


class LeaseQuerySet(models.QuerySet["Lease"]):
    def open(self) -> LeaseQuerySet:
        return self.filter(phase__in=OPEN)

    def of_model(self, swarm: str, prefix: str) -> LeaseQuerySet:
        """Those that lead to blocks of this model."""
        return self.filter(swarm=swarm, prefix=prefix)

    def leaving(self, swarm: str, prefix: str) -> LeaseQuerySet:
        """Those by which a server goes from this model to another one."""
        return self.filter(swarm=swarm, origin_prefix=prefix)

    def touching(self, swarm: str, *prefixes: str) -> LeaseQuerySet:
        return self.filter(Q(prefix__in=prefixes) | Q(origin_prefix__in=prefixes), swarm=swarm)

    def recent(self, since: datetime) -> LeaseQuerySet:
        """Open leases and those closed since then, newest first."""
        return self.filter(Q(phase__in=OPEN) | Q(closed_at__gte=since)).order_by("-created_at")


class Lease(models.Model):
    """One server's promise, or the offer of it, to serve `start:end` of the model `prefix`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    peer_id = models.CharField(max_length=64)
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    origin_start = models.PositiveIntegerField(null=True)
    origin_end = models.PositiveIntegerField(null=True)
    origin_prefix = models.CharField(
        max_length=128, blank=True, default="", help_text="The model that the server leaves, where it is another one"
    )
    claimed = IntegerRangeField(null=True, help_text="First to last block that only this lease serves.")
    # `swarm.wire.hints` owns the words of these two; as choices each new reason would be a migration.
    urgency = models.CharField(max_length=16)
    reason_code = models.CharField(max_length=32)
    reason = models.TextField()
    plan_version = models.BigIntegerField(default=0, help_text="The plan that the offer belongs to")
    expected_gain = models.FloatField(null=True, help_text="Share of the possible throughput, where the planner says")
    cost_s = models.FloatField(null=True, help_text="How long the server says that it loads, in seconds")
    inputs = models.JSONField(default=dict, help_text="What the decision was made on, for people (coordinator.explain)")
    asked_from = models.CharField(max_length=32, blank=True, default="", help_text="Digest of an address; only while open")
    phase = models.CharField(max_length=16, choices=Phase.choices, default=Phase.OFFERED)
    turn = models.PositiveSmallIntegerField(
        default=0, help_text="How many were on their way to the claimed blocks before, and took long"
    )
    progress = models.FloatField(default=0.0, help_text="Share of the span's bytes loaded, 0 to 1; the most that was reported")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True, help_text="Renewals end here; moves on while the server is on course")
    progressed_at = models.DateTimeField(null=True, help_text="When it last reported more; from the accept on")
    renewals = models.PositiveIntegerField(default=0)
    closed_at = models.DateTimeField(null=True)
    close_reason = models.TextField(blank=True, default="")

    objects = LeaseQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(name="lease_span_is_not_empty", condition=Q(end__gt=F("start"))),
            models.CheckConstraint(name="lease_progress_is_a_share", condition=Q(progress__gte=0, progress__lte=1)),
            models.CheckConstraint(name="lease_closed_has_a_time", condition=Q(phase__in=OPEN) ^ Q(closed_at__isnull=False)),
            # Whatever models it offers: a server goes to one place at a time.
            models.UniqueConstraint(name="lease_one_open_per_peer", fields=["swarm", "peer_id"], condition=Q(phase__in=OPEN)),
            models.CheckConstraint(
                name="lease_leaves_another_model",
                condition=Q(origin_prefix="") | (~Q(origin_prefix=F("prefix")) & Q(origin_start__isnull=False)),
            ),
            # Whatever two processes decide at the same moment, a block without a server is promised to one server only; to one
            # more where the ones before it take long (`coordinator.lease_terms`).
            ExclusionConstraint(
                name="lease_one_open_per_hole",
                expressions=[
                    ("swarm", RangeOperators.EQUAL),
                    ("prefix", RangeOperators.EQUAL),
                    ("turn", RangeOperators.EQUAL),
                    ("claimed", RangeOperators.OVERLAPS),
                ],
                condition=Q(phase__in=OPEN, claimed__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["swarm", "prefix", "-created_at"], name="lease_newest"),
            models.Index(
                fields=["swarm", "origin_prefix", "-created_at"], name="lease_newest_leaving", condition=~Q(origin_prefix="")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.peer_id} {self.span} {self.phase}"

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def origin(self) -> Span | None:
        return Span(self.origin_start, self.origin_end) if self.origin_start is not None and self.origin_end else None

    @property
    def is_transfer(self) -> bool:
        """Whether the server is asked to change its model."""
        return bool(self.origin_prefix)

    @property
    def from_model(self) -> str | None:
        """The model that `origin` is of; None for an arrival."""
        return None if self.origin is None else self.origin_prefix or self.prefix

    @property
    def goal_words(self) -> str:
        """`blocks 12–17`, and of which model where the server is to change it."""
        return f"{self.span.in_words()} of {self.prefix}" if self.is_transfer else self.span.in_words()

    @property
    def origin_words(self) -> str:
        """What the server leaves; empty for an arrival."""
        if self.origin is None:
            return ""
        return f"{self.origin.in_words()} of {self.origin_prefix}" if self.is_transfer else self.origin.in_words()

    @property
    def outcome(self) -> Outcome:
        if self.phase == Phase.EXPIRED:
            return Outcome.IGNORED if self.accepted_at is None else Outcome.BROKEN_OFF
        return _OUTCOMES[Phase(self.phase)]

    @property
    def repaired_s(self) -> float | None:
        """From the hint to the blocks being served, where it came to that."""
        return (self.closed_at - self.created_at).total_seconds() if self.phase == Phase.DONE and self.closed_at else None


_OUTCOMES = {
    Phase.OFFERED: Outcome.OPEN,
    Phase.ACCEPTED: Outcome.OPEN,
    Phase.DONE: Outcome.FOLLOWED,
    Phase.DECLINED: Outcome.DECLINED,
    Phase.STALE: Outcome.STALE,
}


class Follower(models.Model):
    """A server that asks for hints: it can be asked to move, and its last heartbeat is newer than any crawl.

    One row for each peer: a server serves one model at a time, and what it has declined holds for all that it offers.
    """

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128, help_text="The model that it serves, or asked about last")
    peer_id = models.CharField(max_length=64)
    num_blocks_max = models.PositiveIntegerField()
    also = models.JSONField(default=dict, help_text="Blocks that fit, by prefix, of other models that it offers")
    also_on_disk = models.JSONField(default=dict, help_text="Spans of them that need no download, by prefix")
    sessions = models.PositiveIntegerField(default=0, help_text="Open sessions, as it said last")
    start = models.PositiveIntegerField(null=True)
    end = models.PositiveIntegerField(null=True)
    asked_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True, help_text="Since when it says that it serves what it says")
    claim_counts = models.BooleanField(default=True, help_text="False for a claim that followed another too soon")
    declines = models.PositiveIntegerField(default=0, help_text="Hints that it did not follow, since it last followed one")
    lapses = models.PositiveIntegerField(default=0, help_text="How many of these it let lapse, or took and did not keep")
    not_before = models.DateTimeField(null=True, help_text="It is not asked to move until then")
    not_because = models.CharField(max_length=300, blank=True, default="")
    elective_declines = models.PositiveIntegerField(default=0, help_text="Moves that fill no hole, declined for the moment")
    elective_not_before = models.DateTimeField(null=True, help_text="It is asked for nothing but holes until then")
    elective_not_because = models.CharField(max_length=300, blank=True, default="")
    paused_at = models.DateTimeField(null=True, help_text="When the last pause was noted; the clock may be set back afterwards")

    class Meta:
        constraints = [
            models.UniqueConstraint(name="follower_once_per_swarm", fields=["swarm", "peer_id"]),
            models.CheckConstraint(
                name="follower_span_whole_or_absent",
                condition=Q(start__isnull=True, end__isnull=True) | Q(end__gt=F("start")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.peer_id} on {self.prefix}"

    @property
    def span(self) -> Span | None:
        return Span(self.start, self.end) if self.start is not None and self.end else None


class Plan(models.Model):
    """The number of a model's plan: it moves on when the swarm, as it was seen, or an open lease to or from it changes."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    version = models.BigIntegerField(default=1)
    fingerprint = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(name="plan_once_per_model", fields=["swarm", "prefix"])]

    def __str__(self) -> str:
        return f"{self.prefix} plan {self.version}"


class Tally(models.Model):
    """How many hints of a model came to an outcome on one day. Leases are forgotten after a while, these are not."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    day = models.DateField()
    outcome = models.CharField(max_length=32)
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(name="tally_once_a_day", fields=["swarm", "prefix", "day", "outcome"])]

    def __str__(self) -> str:
        return f"{self.day} {self.prefix} {self.outcome}: {self.count}"


class Importance(models.Model):
    """How much the staff wants a model to be served, beside others: servers that offer several go where more is wanted."""

    swarm = models.CharField(max_length=64, blank=True, default="", help_text="Empty: every swarm that this site watches")
    prefix = models.CharField(max_length=128, verbose_name="model's prefix")
    weight = models.FloatField(help_text="1 is what every model has that is not listed; 3 is three times as much; 0 is never")
    words = models.CharField(max_length=500, verbose_name="why")

    class Meta:
        verbose_name = "model's importance"
        verbose_name_plural = "importance of models"
        constraints = [
            models.UniqueConstraint(name="importance_once_per_model", fields=["swarm", "prefix"]),
            models.CheckConstraint(name="importance_is_bounded", condition=Q(weight__gte=0, weight__lte=100)),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}: {self.weight:g}"
