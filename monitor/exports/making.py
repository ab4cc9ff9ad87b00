"""Makes the files of days that are over and counted; each once. Rerunnable: what is there stays as it is."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from datetime import UTC, date, datetime, timedelta

from django.conf import settings
from django.db import transaction

from monitor.exports.lines import lines_of
from monitor.exports.models import Export
from monitor.history.models import RolledUp, SwarmDay

CAUGHT_UP_AT_ONCE = 7
"""Days that one run makes at most; the next run is an hour away."""
COUNTED_AFTER = timedelta(minutes=10)
"""A crawl takes four minutes, and its minutes are rolled up within two."""


def make(now: datetime) -> list[date]:
    """The days that were new, oldest first."""
    made = missing(now)[:CAUGHT_UP_AT_ONCE]
    for day in made:
        make_day(day, now)
    return made


def missing(now: datetime) -> list[date]:
    """Days with a history, over, rolled up, not too old, and not there yet."""
    rolled_up = RolledUp.objects.values_list("until", flat=True).first()
    if rolled_up is None or not settings.SEPAL_EXPORT_DAYS:
        return []
    over = (min(now, rolled_up) - COUNTED_AFTER).astimezone(UTC).date()
    oldest = _oldest_kept(now)
    days = SwarmDay.objects.filter(day__lt=over, day__gte=oldest).order_by("day").values_list("day", flat=True).distinct()
    there = set(Export.objects.filter(day__gte=oldest).values_list("day", flat=True))
    return [day for day in days if day not in there]


def make_day(day: date, now: datetime, *, again: bool = False) -> Export:
    """`again` replaces a file, for a peer that opted out after it was made: then privacy goes before permanence."""
    with transaction.atomic():
        if again:
            Export.objects.filter(day=day).delete()
        body, lines = packed(day)
        made, _ = Export.objects.get_or_create(
            day=day,
            defaults={
                "made_at": now,
                "lines": lines,
                "size": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
                "body": body,
            },
        )
    return made


def packed(day: date) -> tuple[bytes, int]:
    """The file and its number of lines. Without the time of making, so that the same history is the same bytes."""
    out, count = io.BytesIO(), 0
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0, filename="") as file:
        for line in lines_of(day):
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            count += 1
    return out.getvalue(), count


def forget(now: datetime) -> None:
    Export.objects.filter(day__lt=_oldest_kept(now)).delete()


def _oldest_kept(now: datetime) -> date:
    return now.astimezone(UTC).date() - timedelta(days=settings.SEPAL_EXPORT_DAYS)
