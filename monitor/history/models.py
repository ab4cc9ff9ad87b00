"""The tables of the history, with what must hold in each of them. Written by `record` and `rollups` only.

Minutes are partitioned by day (migration 0003) and dropped after a week; days and hours are computed from them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, IntegerField, Q

from monitor.history.fields import BlocksField, MinutesField, RealField
from monitor.history.rules import Kind


class DayQuerySet(models.QuerySet[Any]):
    def annotate_counts(self) -> Self:
        """`n_watched`, `n_up` ...: how many minutes each of the day's fields has."""
        fields = [field.name for field in self.model._meta.concrete_fields if isinstance(field, MinutesField)]
        return self.annotate(**{f"n_{name}": Func(name, function="bit_count", output_field=IntegerField()) for name in fields})


def no_blocks() -> list[int]:
    return [0] * 24


class Peer(models.Model):
    """A peer id written out once: the tables of minutes and days hold its number."""

    id = models.AutoField(primary_key=True)
    peer_id = models.CharField(max_length=64, unique=True)

    def __str__(self) -> str:
        return self.peer_id


class PeerSample(models.Model):
    """One server of one model in one watched minute. Without a row, it was not in the swarm."""

    pk = models.CompositePrimaryKey("model_id", "peer_id", "ts")
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, related_name="+", db_index=False)
    peer = models.ForeignKey(Peer, on_delete=models.CASCADE, related_name="+", db_index=False)
    ts = models.DateTimeField()
    start = models.SmallIntegerField()
    end = models.SmallIntegerField()
    state = models.CharField(max_length=16, help_text="As last seen in this minute")
    up = models.BooleanField(null=True, help_text="Online whenever seen in this minute; empty where it was not checked")
    throughput = RealField(null=True, help_text="Tokens per second, as its record says")
    cache_tokens = models.IntegerField(null=True, help_text="Of a session, that its cache had room for; the least while online")

    class Meta:
        db_table = "monitor_peersample"

    def __str__(self) -> str:
        return f"{self.ts:%H:%M} {self.state}"


class ModelMinute(models.Model):
    """One model in one watched minute, at its worst. Without a row, the minute was not watched."""

    pk = models.CompositePrimaryKey("model_id", "ts")
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, related_name="+", db_index=False)
    ts = models.DateTimeField()
    missing = BlocksField()
    thin = BlocksField()
    unread = BlocksField()
    servers = models.IntegerField(help_text="Online")
    bottleneck = models.FloatField(null=True, help_text="Tokens per second of the slowest block, as its servers report them")
    bottleneck_believed = models.FloatField(null=True, help_text="The same as far as each server was believed then")

    class Meta:
        db_table = "monitor_modelminute"

    def __str__(self) -> str:
        return f"{self.ts:%H:%M}"


class SwarmDay(models.Model):
    """Which minutes of a day the monitor saw the swarm, and when it last did."""

    pk = models.CompositePrimaryKey("swarm", "day")
    swarm = models.CharField(max_length=64)
    day = models.DateField()
    watched = MinutesField()
    last_observed_at = models.DateTimeField()

    objects = DayQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.swarm} {self.day}"


class ModelDay(models.Model):
    """A model's day. A watched minute is broken, unknown (keys not read), thin, or none of them: complete."""

    pk = models.CompositePrimaryKey("model_id", "day")
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(db_index=True)
    watched = MinutesField()
    broken = MinutesField()
    thin = MinutesField()
    unknown = MinutesField()

    objects = DayQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.day}"


class ModelHour(models.Model):
    """A model's hour in figures."""

    pk = models.CompositePrimaryKey("model_id", "hour")
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, related_name="+", db_index=False)
    hour = models.DateTimeField(db_index=True)
    watched = models.SmallIntegerField()
    broken = models.SmallIntegerField()
    thin = models.SmallIntegerField()
    unknown = models.SmallIntegerField()
    servers_min = models.IntegerField()
    servers_mean = models.FloatField()
    bottleneck_mean = models.FloatField(null=True, help_text="As servers report it")
    bottleneck_believed_mean = models.FloatField(null=True, help_text="As far as they were believed; empty: not reckoned then")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(watched__gte=1, watched__lte=60), name="hour_has_sixty_minutes"),
            models.CheckConstraint(
                condition=Q(broken__gte=0, thin__gte=0, unknown__gte=0)
                & Q(watched__gte=F("broken") + F("thin") + F("unknown")),
                name="hour_adds_up",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}"


class BlockDay(models.Model):
    """A block's day, kept only where something was wrong: the other watched minutes it had two servers or more."""

    pk = models.CompositePrimaryKey("model_id", "block", "day")
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, related_name="+", db_index=False)
    block = models.SmallIntegerField()
    day = models.DateField(db_index=True)
    missing = MinutesField()
    thin = MinutesField()
    unread = MinutesField()

    objects = DayQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.block} {self.day}"


class PeerDay(models.Model):
    """A server's day. `unknown` are minutes in which the model was watched and this server not checked."""

    pk = models.CompositePrimaryKey("model_id", "peer_id", "day")
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, related_name="+", db_index=False)
    peer = models.ForeignKey(Peer, on_delete=models.CASCADE, related_name="+")
    day = models.DateField(db_index=True)
    up = MinutesField()
    unknown = MinutesField(null=True, default=None)
    first_minute = models.SmallIntegerField(help_text="Of this day in which it was in the swarm")
    throughput = ArrayField(RealField(null=True), size=24, help_text="Tokens per second while up, as it says, hour by hour")
    block_minutes = ArrayField(
        IntegerField(), size=24, default=no_blocks, help_text="Blocks served, times minutes, hour by hour"
    )
    cache_mean = ArrayField(IntegerField(null=True), size=24, null=True, help_text="Tokens that it had room for, hour by hour")
    cache_least = ArrayField(IntegerField(null=True), size=24, null=True, help_text="The least of each hour; empty: never said")

    objects = DayQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(first_minute__gte=0, first_minute__lt=1440), name="peer_day_minute"),
        ]

    def __str__(self) -> str:
        return f"{self.day}"


class RolledUp(models.Model):
    """Up to when minutes have become hours and days. One row: partitions after it are never dropped."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    until = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="rolled_up_is_one_row")]

    def __str__(self) -> str:
        return f"{self.until}"


class Incident(models.Model):
    """Something that went wrong, from when to when at the narrowest, which blocks, who left and who repaired it.

    Unconfirmed it is a suspicion (a hole in one crawl) and shown to nobody.
    """

    swarm = models.CharField(max_length=64)
    model = models.ForeignKey("monitor.WatchedModel", on_delete=models.CASCADE, null=True, related_name="incidents")
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in Kind])
    started_after = models.DateTimeField(null=True, help_text="When all was still well; empty where nobody had looked")
    started_before = models.DateTimeField(help_text="When it was first seen")
    confirmed_at = models.DateTimeField(null=True)
    bad_at = models.DateTimeField(help_text="When it was last seen")
    ended_before = models.DateTimeField(null=True, help_text="When it was first seen to be over")
    blocks = ArrayField(models.PositiveSmallIntegerField(), default=list, help_text="All that were ever part of it")
    current = models.JSONField(default=dict, help_text="Block: [all well at or null, first seen at], in Unix seconds")
    left = models.JSONField(default=list, help_text="Who left: peer_id, how, at, blocks")
    restored = models.JSONField(default=list, help_text="Who came instead: peer_id, blocks")
    reason = models.TextField(blank=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["swarm", "-id"], name="incident_newest")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=[kind.value for kind in Kind]), name="incident_kind_known"),
            models.CheckConstraint(
                condition=Q(kind="blind", model__isnull=True) | (~Q(kind="blind") & Q(model__isnull=False)),
                name="incident_has_a_model",
            ),
            models.CheckConstraint(
                condition=Q(started_after__isnull=True) | Q(started_after__lte=F("started_before")),
                name="incident_starts_in_order",
            ),
            models.CheckConstraint(condition=Q(bad_at__gte=F("started_before")), name="incident_was_seen"),
            models.CheckConstraint(
                condition=Q(ended_before__isnull=True) | Q(ended_before__gte=F("bad_at"), confirmed_at__isnull=False),
                name="incident_ends_in_order",
            ),
            models.CheckConstraint(
                condition=Q(kind="blind") | Q(confirmed_at__isnull=True) | ~Q(blocks=[]), name="incident_has_blocks"
            ),
            models.UniqueConstraint(
                fields=["model", "kind"], condition=Q(ended_before__isnull=True), name="incident_one_open_a_kind"
            ),
            models.UniqueConstraint(
                fields=["swarm"], condition=Q(ended_before__isnull=True, kind="blind"), name="incident_one_blindness"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.started_before:%Y-%m-%d %H:%M}"
