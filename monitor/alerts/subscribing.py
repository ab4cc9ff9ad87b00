"""The life of a subscription: asked for, confirmed by its address, tested, ended. Double opt-in: until its address has
confirmed it, one message is all that it ever gets.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from monitor.alerts import messages, outbox
from monitor.alerts.forms import Asked
from monitor.alerts.models import Subscription
from monitor.alerts.rules import News

FOR_ONE_ADDRESS = 20
UNCONFIRMED_FOR_ONE_ADDRESS = 3
IN_ALL = 20_000
"""What one judge looks through in four seconds on a busy core, of four models with 500 servers each."""
ASK_AGAIN_AFTER = timedelta(minutes=10)


class Refused(Exception):
    """The sentence is for the person who asked."""


def subscribe(swarm: str, asked: Asked, now: datetime) -> Subscription | None:
    """None where this subscription is there already: its address is sent the link again, and whoever asks learns nothing."""
    with transaction.atomic():
        wanted = {**asdict(asked), "topic": asked.topic.value, "way": asked.way.value}
        known = Subscription.objects.filter(swarm=swarm, **wanted).first()
        if known is not None:
            _send_link(known, now)
            return None
        _check_room(asked.address)
        try:
            with transaction.atomic():
                made = Subscription.objects.create(swarm=swarm, created_at=now, **wanted)
        except IntegrityError:
            return None  # Asked for twice at the same moment.
        _send_link(made, now)
    return made


def confirm(subscription: Subscription, now: datetime) -> None:
    """Also starts again what had been stopped."""
    Subscription.objects.filter(pk=subscription.pk, confirmed_at=None).update(confirmed_at=now)
    Subscription.objects.filter(pk=subscription.pk).update(stopped="")


def test(subscription: Subscription, now: datetime) -> None:
    with transaction.atomic():
        outbox.put(subscription, News.TEST, messages.of_test(subscription, now.timestamp()), now)


def remove(subscription: Subscription) -> None:
    """With everything that was sent: nothing of the address stays."""
    subscription.delete()


def _send_link(subscription: Subscription, now: datetime) -> None:
    lately = subscription.deliveries.filter(news=News.CONFIRM.value, created_at__range=(now - ASK_AGAIN_AFTER, now))
    if not lately.exists():
        outbox.put(subscription, News.CONFIRM, messages.of_confirmation(subscription, now.timestamp()), now)


def _check_room(address: str) -> None:
    of_address = Subscription.objects.filter(address__iexact=address)
    if of_address.filter(confirmed_at=None).count() >= UNCONFIRMED_FOR_ONE_ADDRESS:
        raise Refused("This address has been asked to confirm other alerts, and has not. Confirm those first.")
    if of_address.count() >= FOR_ONE_ADDRESS:
        raise Refused(f"This address has {FOR_ONE_ADDRESS} alerts already. Remove one first.")
    if Subscription.objects.count() >= IN_ALL:
        raise Refused("This site takes no more alerts at the moment.")
