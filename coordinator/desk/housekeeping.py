"""What of the desk's tables is not kept: ended sessions, and old tries to log in. Rulings and the audit stay."""

from __future__ import annotations

from datetime import datetime

from django.contrib.sessions.backends.db import SessionStore

from coordinator.desk import throttle


def tidy(now: datetime) -> None:
    SessionStore.clear_expired()
    throttle.forget(now)
