"""The Celery application: crawls on the queue `crawl` (one worker that owns the DHT node), the rest on `default`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import beat_init, worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")

app = Celery("sepal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["monitor", "monitor.alerts", "monitor.exports", "coordinator"])


@worker_ready.connect
@beat_init.connect
def _say_ready(**_: Any) -> None:
    """A launcher waits for this file; without the variable nothing is written."""
    path = os.environ.get("SEPAL_READY_FILE")
    if path:
        Path(path).write_text(str(os.getpid()))
