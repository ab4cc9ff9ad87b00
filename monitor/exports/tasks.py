"""Celery's door: files of new days, and no more of old ones."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from celery import shared_task

from monitor.exports import making
from monitor.models import Crawl

log = logging.getLogger(__name__)


@shared_task(ignore_result=True)
def export() -> None:
    now = datetime.now(UTC)
    for day in making.make(now):
        log.info("exported %s", day)
    if Crawl.objects.all().bear_out(now):
        making.forget(now)
