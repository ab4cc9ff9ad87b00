"""What the staff has decided, one row a decision: in which swarm, on whom, why, from when to when. Facts and constraints only.

A ruling ends and is never deleted, so that what it did stays explained. All kinds lie in one table: what holds now is one
query on every page.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q


class Kind(models.TextChoices):
    QUARANTINE = "quarantine"
    MAINTENANCE = "maintenance"
    BANNER = "banner"


class RulingQuerySet(models.QuerySet[Any]):
    def at(self, moment: datetime) -> Self:
        return self.filter(starts_at__lte=moment, ends_at__gt=moment)

    def between(self, since: datetime, until: datetime) -> Self:
        return self.filter(starts_at__lte=until, ends_at__gte=since)

    def of_swarm(self, swarm: str) -> Self:
        return self.filter(swarm__in=("", swarm))


class Ruling(models.Model):
    kind = models.CharField(max_length=16, choices=Kind)
    swarm = models.CharField(max_length=64, blank=True, default="", help_text="Empty: every swarm that this site watches")
    subject = models.CharField(max_length=256, blank=True, default="")
    words = models.CharField(max_length=500)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(help_text="It ends by itself: a forgotten ruling must not hold for good")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    made_at = models.DateTimeField()

    objects = RulingQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["ends_at", "starts_at"], name="ruling_by_time")]
        constraints: ClassVar = [
            models.CheckConstraint(name="ruling_kind_known", condition=Q(kind__in=Kind.values)),
            models.CheckConstraint(name="ruling_ends_after_start", condition=Q(ends_at__gte=F("starts_at"))),
            models.CheckConstraint(name="ruling_is_about_someone", condition=~Q(subject="") | ~Q(kind="quarantine")),
            models.CheckConstraint(name="ruling_says_why", condition=~Q(words="")),
        ]

    def __str__(self) -> str:
        about = f" of {self.subject}" if self.subject else ""
        return f"{self.get_kind_display()}{about}: {self.words[:60]}"


class Quarantine(Ruling):
    """A server that counts for nothing and gets no hint until it ends."""

    class Meta:
        proxy = True
        verbose_name = "quarantine"
        verbose_name_plural = "quarantined servers"


class Maintenance(Ruling):
    """A time in which a model, or the swarm, is expected to have gaps: nobody is alerted."""

    class Meta:
        proxy = True
        verbose_name = "maintenance window"
        verbose_name_plural = "maintenance windows"


class Banner(Ruling):
    """A sentence at the top of every public page."""

    class Meta:
        proxy = True
        verbose_name = "banner"
        verbose_name_plural = "banners"


class IncidentNote(models.Model):
    """What the staff wrote about an incident. Public, and never changed: a correction is another note."""

    incident = models.ForeignKey("monitor.Incident", on_delete=models.CASCADE, related_name="notes")
    words = models.TextField(max_length=2_000)
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", editable=False)
    made_at = models.DateTimeField(editable=False)

    class Meta:
        verbose_name = "note"
        constraints: ClassVar = [models.CheckConstraint(name="note_says_something", condition=~Q(words=""))]

    def __str__(self) -> str:
        return self.words[:60]


class LogInTry(models.Model):
    """A try to log in that has not succeeded. Digests only: what was typed as a name may be a password."""

    name = models.CharField(max_length=32)
    address = models.CharField(max_length=32)
    at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["name", "at"], name="log_in_by_name"),
            models.Index(fields=["address", "at"], name="log_in_by_address"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S}"
