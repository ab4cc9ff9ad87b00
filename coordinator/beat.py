"""Celery's scheduler for a machine whose clock was wrong for a while. By itself it would wait with every task until the time
comes at which it says that it ran last, and keeps that in a file; no crawl would run until then. Knows no task.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from celery.beat import PersistentScheduler

SET_BACK = timedelta(seconds=5)
"""Clocks that are kept right move by less. What is due is due a little late then."""


class Scheduler(PersistentScheduler):
    _ticked_at: datetime | None = None

    def tick(self, *given: Any, **named: Any) -> float:
        now = self.app.now()
        entries = self.schedule.values()
        set_back = self._ticked_at is not None and self._ticked_at - now > SET_BACK
        if set_back or any(entry.last_run_at - now > SET_BACK for entry in entries):
            for entry in entries:
                entry.last_run_at = min(entry.last_run_at, now)
            # Made anew from these: it holds the moments at which each is due.
            self._heap = None
        self._ticked_at = now
        wait_s: float = super().tick(*given, **named)
        return wait_s
