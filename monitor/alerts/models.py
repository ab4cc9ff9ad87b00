"""Who wants to be told of what, what they were told, and what is still to be sent. Holds addresses of people: nothing here is
part of any output, and it goes when they unsubscribe.
"""

from __future__ import annotations

import secrets
import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from monitor.alerts.rules import News, Topic


class Way(models.TextChoices):
    WEBHOOK = "webhook", "webhook"
    EMAIL = "email", "e-mail"


def new_secret() -> str:
    """192 bits: whoever holds the link may do everything with the subscription."""
    return secrets.token_urlsafe(24)


class SubscriptionQuerySet(models.QuerySet["Subscription"]):
    def active(self) -> SubscriptionQuerySet:
        return self.filter(confirmed_at__isnull=False, stopped="")


class Subscription(models.Model):
    """Active once its address has confirmed it (double opt-in), until it is removed or its address fails for good."""

    swarm = models.CharField(max_length=64)
    topic = models.CharField(max_length=16, choices=[(topic.value, topic.value) for topic in Topic])
    prefix = models.CharField(max_length=128, blank=True)
    peer_id = models.CharField(max_length=64, blank=True)
    target = models.PositiveSmallIntegerField(default=0, help_text="Servers that every block should have")
    way = models.CharField(max_length=8, choices=Way)
    address = models.CharField(max_length=500, help_text="An https URL or an e-mail address")
    secret = models.CharField(max_length=64, unique=True, default=new_secret, help_text="What the link to manage it ends in")
    signing_key = models.CharField(max_length=64, default=new_secret, help_text="Webhooks are signed with it")
    created_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True)
    stopped = models.CharField(max_length=200, blank=True, help_text="Why nothing is sent any more")

    objects = SubscriptionQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["swarm", "topic", "prefix", "peer_id", "target", "way", "address"], name="subscription_once"
            ),
            models.CheckConstraint(condition=Q(way__in=Way.values), name="subscription_way_known"),
            models.CheckConstraint(condition=~Q(address=""), name="subscription_has_an_address"),
            models.CheckConstraint(
                condition=Q(topic__in=["model", "redundancy", "canary"], peer_id="") & ~Q(prefix="")
                | Q(topic="peer", prefix="") & ~Q(peer_id="")
                | Q(topic__in=["bootstrap", "blind"], prefix="", peer_id=""),
                name="subscription_names_what_it_is_about",
            ),
            models.CheckConstraint(condition=Q(topic="redundancy") ^ Q(target=0), name="subscription_has_a_target"),
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.prefix or self.peer_id} by {self.way}"


class AlarmRow(models.Model):
    """One condition of one subscription from its first bad sight on. Deleted where the second sight does not bear it out."""

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="alarms")
    bad_at = models.DateTimeField()
    fired_at = models.DateTimeField(null=True)
    level = models.PositiveSmallIntegerField(default=1)
    good_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    words = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["subscription"], condition=Q(ended_at__isnull=True), name="alarm_one_open_a_subscription"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(fired_at__isnull=False), name="alarm_ends_once_fired"
            ),
            models.CheckConstraint(condition=Q(level__in=[1, 2]), name="alarm_level_known"),
        ]

    def __str__(self) -> str:
        return self.words


class Delivery(models.Model):
    """One message to one address. Kept in the database, so that neither Redis nor a worker that dies loses it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="deliveries")
    news = models.CharField(max_length=16, choices=[(news.value, news.value) for news in News])
    message = models.JSONField()
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    given_up_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["due_at"], condition=Q(sent_at=None, given_up_at=None), name="delivery_due"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(news__in=[news.value for news in News]), name="delivery_news_known"),
            models.CheckConstraint(condition=Q(sent_at__isnull=True) | Q(given_up_at__isnull=True), name="delivery_one_end"),
            models.CheckConstraint(condition=Q(due_at__gte=F("created_at")), name="delivery_due_after_it_was_made"),
        ]

    def __str__(self) -> str:
        return f"{self.news} {self.created_at:%Y-%m-%d %H:%M}"
