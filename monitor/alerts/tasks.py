"""Celery's doors: send what waits, forget what is over."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from monitor.alerts import mail, outbox, webhook
from monitor.alerts.models import Delivery, Way
from monitor.models import Crawl


def send(delivery: Delivery) -> None:
    if delivery.subscription.way == Way.EMAIL:
        mail.send(delivery)
    else:
        webhook.post(delivery)


@shared_task(ignore_result=True)
def deliver() -> None:
    outbox.run(datetime.now(UTC), send)


@shared_task(ignore_result=True)
def forget() -> None:
    now = datetime.now(UTC)
    if Crawl.objects.all().bear_out(now):
        outbox.forget(now)
