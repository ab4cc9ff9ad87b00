"""Rates as they were seen. Facts with constraints; what they are worth is `swarm.throughput`'s to say."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from swarm.answers.judging import Standing


class Probe(models.Model):
    """One attempt of our own to measure a server; without a rate it says why."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    peer_id = models.CharField(max_length=64)
    at = models.DateTimeField()
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    tokens_per_s = models.FloatField(null=True)
    why = models.CharField(max_length=64, blank=True, help_text="Why there is no rate")
    cache_tokens = models.BigIntegerField(null=True, help_text="Free cache that it told just before")
    round = models.PositiveIntegerField(null=True, help_text="Who was asked in the same one was asked alike")
    block = models.PositiveIntegerField(null=True, help_text="The block that was asked for alone")
    network = models.CharField(max_length=64, blank=True, help_text="Digest of the network that it sits in")
    precision = models.CharField(max_length=16, blank=True, help_text="Quantisation that it announces")
    wrong = models.CharField(max_length=64, blank=True, help_text="What is wrong with its answer by itself")
    block_print = models.JSONField(null=True, help_text="What is kept of the answer of the one block: length, sums")
    whole_print = models.JSONField(null=True, help_text="The same of all its blocks")

    class Meta:
        indexes: ClassVar = [models.Index(fields=["swarm", "prefix", "peer_id", "-at"], name="probe_newest")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="probe_span_not_empty"),
            models.CheckConstraint(
                # With "not null" spelled out: a check that comes to null passes.
                condition=Q(tokens_per_s__isnull=False, tokens_per_s__gt=0, why="")
                | (Q(tokens_per_s__isnull=True) & ~Q(why="")),
                name="probe_rate_or_why",
            ),
            models.CheckConstraint(condition=Q(wrong="") | Q(tokens_per_s__isnull=True), name="probe_wrong_is_no_rate"),
        ]

    def __str__(self) -> str:
        return f"{self.peer_id} {self.tokens_per_s or self.why}"


class AnswerFinding(models.Model):
    """What the answers of one server come to, as of the last round. Made anew from the probes; kept because pages ask often."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    peer_id = models.CharField(max_length=64)
    at = models.DateTimeField(help_text="When it was found")
    standing = models.CharField(max_length=16, choices=[(standing.value, standing.value) for standing in Standing])
    round = models.PositiveIntegerField()
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    whole = models.BooleanField(default=False, help_text="Of all its blocks at once")
    against = models.PositiveIntegerField(default=0, help_text="Operators who agree with each other and not with it")
    wrong = models.CharField(max_length=64, blank=True, help_text="What is wrong with its answers by themselves")
    times = models.PositiveIntegerField(default=0, help_text="How often in a row")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["swarm", "prefix", "peer_id"], name="answer_finding_once_a_server"),
            models.CheckConstraint(condition=Q(end__gt=F("start")), name="answer_finding_span_not_empty"),
            models.CheckConstraint(
                condition=Q(standing__in=[standing.value for standing in Standing]), name="answer_finding_known"
            ),
            models.CheckConstraint(
                condition=Q(standing="wrong", times__gt=0) & ~Q(wrong="") | ~Q(standing="wrong") & Q(times=0, wrong=""),
                name="answer_finding_wrong_says_what",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.peer_id} {self.standing}"


class Witness(models.Model):
    """What clients at one address saw of one server: their newest word only. `witness` is a digest, or a trusted peer id."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    peer_id = models.CharField(max_length=64)
    witness = models.CharField(max_length=64)
    trusted = models.BooleanField(default=False)
    at = models.DateTimeField()
    tokens_per_s = models.FloatField(null=True)
    requests = models.PositiveIntegerField()
    failures = models.PositiveIntegerField()
    last_error = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["swarm", "prefix", "peer_id", "witness"], name="witness_once_a_server"),
            models.CheckConstraint(condition=Q(failures__lte=F("requests")), name="witness_failures_are_requests"),
            models.CheckConstraint(
                condition=Q(tokens_per_s__isnull=True) | Q(tokens_per_s__gt=0), name="witness_rate_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.witness[:8]} on {self.peer_id}"


class CanaryRun(models.Model):
    """A token generated through a swarm by somebody whom the operator trusts, and whether it was the one expected."""

    swarm = models.CharField(max_length=64)
    prefix = models.CharField(max_length=128)
    reporter = models.CharField(max_length=64)
    at = models.DateTimeField()
    outcome = models.CharField(max_length=16, choices=[(word, word) for word in ("expected", "unexpected", "failed")])
    trusted_by = models.CharField(max_length=16, help_text="What the expected answer rests on: configured or majority")
    detail = models.CharField(max_length=300, blank=True)
    peers = models.JSONField(default=list, help_text="Peer ids of the route, in order")
    seconds = models.FloatField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["swarm", "prefix", "-at"], name="canary_newest")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(outcome__in=["expected", "unexpected", "failed"]), name="canary_outcome_known"),
            models.CheckConstraint(condition=Q(seconds__isnull=True) | Q(seconds__gte=0), name="canary_seconds_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix} {self.outcome}"
