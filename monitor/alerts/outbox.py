"""Messages on their way: each is claimed by one worker, sent, and tried again later where that failed.

A message may arrive twice (a worker that dies after sending), and is told apart by its id; it is not lost.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from django.db import transaction
from django.db.models import Q
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from monitor.alerts.models import Delivery, Subscription
from monitor.alerts.rules import News
from swarm.errors import RemoteError

log = logging.getLogger(__name__)

BACKOFF = tuple(timedelta(seconds=s) for s in (30, 120, 600, 3_600, 6 * 3_600))
"""After each failed attempt. Together a third of a day: receivers are repaired by people."""
LONGEST_WAIT = 2 * BACKOFF[-1]
CLAIMED_FOR = timedelta(minutes=2)
"""Longer than any attempt takes. A claim by a worker that died lapses after it."""
A_RUN = 200
"""Messages that one run sends; the next run is seconds away."""
KEPT_FOR = timedelta(days=30)
UNCONFIRMED_FOR = timedelta(days=2)


class DeliveryFailed(RemoteError):
    """`permanent`: trying again cannot help. `gone`: the receiver wants nothing any more."""

    def __init__(self, words: str, *, permanent: bool = False, gone: bool = False) -> None:
        super().__init__(words)
        self.permanent, self.gone = permanent or gone, gone


Send = Callable[[Delivery], None]
"""Raises DeliveryFailed."""


def put(subscription: Subscription, news: News, message: dict[str, Any], now: datetime) -> Delivery:
    """Sent soon after the surrounding transaction commits."""
    delivery = Delivery.objects.create(subscription=subscription, news=news.value, message=message, created_at=now, due_at=now)
    transaction.on_commit(_ask_for_a_run)
    return delivery


def _ask_for_a_run() -> None:
    """Without Redis the message waits for the next run of the clock."""
    try:
        current_app.send_task("monitor.alerts.tasks.deliver", retry=False, ignore_result=True)
    except (RedisError, OperationalError) as error:
        log.warning("messages wait: Redis does not answer (%s)", type(error).__name__)


def run(now: datetime, send: Send) -> int:
    """How many messages were tried."""
    for tried in range(A_RUN):
        delivery = _claim(now)
        if delivery is None:
            return tried
        try:
            send(delivery)
        except DeliveryFailed as error:
            _failed(delivery, error, now)
        except Exception:
            # A door: a fault of ours in one message must not keep the others from being sent.
            log.exception("message %s could not be sent", delivery.pk)
            _failed(delivery, DeliveryFailed("this is our fault, and it is in our log"), now)
        else:
            Delivery.objects.filter(pk=delivery.pk).update(sent_at=now, last_error="")
    return A_RUN


def _claim(now: datetime) -> Delivery | None:
    with transaction.atomic():
        # Nothing waits longer than that: due later, it was put there by a clock that was ahead.
        due = Q(due_at__lte=now) | Q(due_at__gt=now + LONGEST_WAIT)
        waiting = Delivery.objects.filter(due, sent_at=None, given_up_at=None)
        # What asks for a confirmation is sent to who has not confirmed; all else is not.
        wanted = waiting.filter(Q(subscription__stopped="") & (Q(subscription__confirmed_at__isnull=False) | Q(news="confirm")))
        delivery = (
            wanted.select_for_update(skip_locked=True, of=("self",)).select_related("subscription").order_by("due_at").first()
        )
        if delivery is not None:
            delivery.due_at, delivery.attempts = now + CLAIMED_FOR, delivery.attempts + 1
            delivery.created_at = min(delivery.created_at, now)
            delivery.save(update_fields=["due_at", "attempts", "created_at"])
    return delivery


def _failed(delivery: Delivery, error: DeliveryFailed, now: datetime) -> None:
    words = str(error)[:300]
    last = error.permanent or delivery.attempts > len(BACKOFF)
    log.warning("message %s, attempt %d: %s", delivery.pk, delivery.attempts, words)
    if last:
        Delivery.objects.filter(pk=delivery.pk).update(given_up_at=now, last_error=words)
    else:
        # Spread out, so that a receiver that comes back does not get everything in one second.
        wait = BACKOFF[delivery.attempts - 1] * random.uniform(1.0, 1.25)  # noqa: S311  (no secret)
        Delivery.objects.filter(pk=delivery.pk).update(due_at=now + wait, last_error=words)
    if error.gone:
        # Nor later, should it be started again: old news are none.
        Delivery.objects.filter(subscription=delivery.subscription_id, sent_at=None, given_up_at=None).delete()
        Subscription.objects.filter(pk=delivery.subscription_id).update(stopped=words[:200])


def forget(now: datetime) -> None:
    """What was sent or given up long ago, and what nobody confirmed."""
    Delivery.objects.filter(Q(sent_at__lt=now - KEPT_FOR) | Q(given_up_at__lt=now - KEPT_FOR)).delete()
    Subscription.objects.filter(confirmed_at=None, created_at__lt=now - UNCONFIRMED_FOR).delete()
