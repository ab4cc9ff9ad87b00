"""Leases: hints given and not yet seen on the DHT. Facts and constraints only; the rules are in `coordinator.hints`.

A lease is soft state: after a restart, or without this table, the DHT is the truth.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import IntegerRangeField, RangeOperators
from django.db import models
from django.db.models import F, Q

from swarm.placement import Promise
from swarm.wire.hints import ReasonCode, Urgency
from swarm.wire.spans import Span


class Phase(models.TextChoices):
    OFFERED = "offered"
    ACCEPTED = "accepted"
    DONE = "done"
    DECLINED = "declined"
    STALE = "stale"
    EXPIRED = "expired"


OPEN = (Phase.OFFERED, Phase.ACCEPTED)


class LeaseQuerySet(models.QuerySet["Lease"]):
    def open(self) -> LeaseQuerySet:
        return self.filter(phase__in=OPEN)

    def of_model(self, swarm: str, prefix: str) -> LeaseQuerySet:
        return self.filter(swarm=swarm, prefix=prefix)

    def overdue(self, now: datetime) -> LeaseQuerySet:
        return self.open().filter(expires_at__lte=now)

    def recent(self, since: datetime) -> LeaseQuerySet:
        """Open leases and those closed since then, newest first."""
        return self.filter(Q(phase__in=OPEN) | Q(closed_at__gte=since)).order_by("-created_at")


class Lease(models.Model):
    """One server's promise, or the offer of it, to serve `start:end`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    peer_id = models.CharField(max_length=64)
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    origin_start = models.PositiveIntegerField(null=True)
    origin_end = models.PositiveIntegerField(null=True)
    claimed = IntegerRangeField(null=True, help_text="First to last block that only this lease serves.")
    urgency = models.CharField(max_length=16, choices=[(u.value, u.value) for u in Urgency])
    reason_code = models.CharField(max_length=32, choices=[(c.value, c.value) for c in ReasonCode])
    reason = models.TextField()
    phase = models.CharField(max_length=16, choices=Phase.choices, default=Phase.OFFERED)
    progress = models.FloatField(default=0.0, help_text="Share of the span's bytes loaded, 0 to 1.")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    close_reason = models.TextField(blank=True, default="")

    objects = LeaseQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(name="lease_span_is_not_empty", condition=Q(end__gt=F("start"))),
            models.CheckConstraint(name="lease_progress_is_a_share", condition=Q(progress__gte=0, progress__lte=1)),
            models.CheckConstraint(name="lease_closed_has_a_time", condition=Q(phase__in=OPEN) ^ Q(closed_at__isnull=False)),
            models.UniqueConstraint(
                name="lease_one_open_per_peer", fields=["swarm", "prefix", "peer_id"], condition=Q(phase__in=OPEN)
            ),
            # Whatever two processes decide at the same moment, a block without a server is promised to one server only.
            ExclusionConstraint(
                name="lease_one_open_per_hole",
                expressions=[
                    ("swarm", RangeOperators.EQUAL),
                    ("prefix", RangeOperators.EQUAL),
                    ("claimed", RangeOperators.OVERLAPS),
                ],
                condition=Q(phase__in=OPEN, claimed__isnull=False),
            ),
        ]
        indexes = [models.Index(fields=["swarm", "prefix", "-created_at"], name="lease_newest")]

    def __str__(self) -> str:
        return f"{self.peer_id} {self.span} {self.phase}"

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def origin(self) -> Span | None:
        return Span(self.origin_start, self.origin_end) if self.origin_start is not None and self.origin_end else None

    @property
    def promise(self) -> Promise:
        return Promise(self.peer_id, self.span)


class Follower(models.Model):
    """A server that asks for hints: it can be asked to move, and its last heartbeat is newer than any crawl."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    peer_id = models.CharField(max_length=64)
    num_blocks_max = models.PositiveIntegerField()
    start = models.PositiveIntegerField(null=True)
    end = models.PositiveIntegerField(null=True)
    asked_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="follower_once_per_model", fields=["swarm", "prefix", "peer_id"]),
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
