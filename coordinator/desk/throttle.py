"""How often one may fail to log in, by name and by address, over fifteen minutes. Counted in Postgres, which a log-in needs
anyway: where Redis is down the staff can still come in, and nobody can try without end.

A try is counted before the password is looked at, so that many at once gain nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from django.conf import settings
from django.db.models import Min

from coordinator.desk.models import LogInTry

WINDOW = timedelta(minutes=15)
TRIES_OF_A_NAME = 10
"""People mistype a few times. Who wants to keep a person out by failing on purpose has to go on for as long as they do."""
TRIES_OF_AN_ADDRESS = 30
"""Several of the staff may sit behind one address."""
KEPT_FOR = timedelta(days=1)


class TooManyTries(Exception):
    def __init__(self, wait: timedelta) -> None:
        minutes = max(1, ceil(wait.total_seconds() / 60))
        super().__init__(
            f"Too many failed log-ins for this name or from this address. Try again in {minutes} "
            f"{'minute' if minutes == 1 else 'minutes'}."
        )


@dataclass(frozen=True, slots=True)
class Try:
    """One try, counted as failed until it is known to be right."""

    row: LogInTry

    def succeeded(self) -> None:
        LogInTry.objects.filter(name=self.row.name, address=self.row.address).delete()


def begin(name: str, address: str, now: datetime) -> Try:
    """Raises TooManyTries; a try that is refused here does not count, or waiting would never end."""
    row = LogInTry.objects.create(name=_digest(name.casefold()), address=_digest(address), at=now)
    recent = LogInTry.objects.filter(at__gt=now - WINDOW, at__lte=now + WINDOW)
    for tries, limit in (
        (recent.filter(name=row.name), TRIES_OF_A_NAME),
        (recent.filter(address=row.address), TRIES_OF_AN_ADDRESS),
    ):
        if tries.count() > limit:
            row.delete()
            oldest = tries.aggregate(oldest=Min("at"))["oldest"] or now
            raise TooManyTries(oldest + WINDOW - now)
    return Try(row)


def forget(now: datetime) -> None:
    LogInTry.objects.filter(at__lt=now - KEPT_FOR).delete()


def _digest(text: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]
