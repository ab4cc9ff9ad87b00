"""Postgres -> a model's last day, minute by minute, for the picture of time by block. One read."""

from __future__ import annotations

from datetime import timedelta

from monitor.drawing.heat import Heat, Minute, heat
from monitor.history.minutes import moment
from monitor.history.models import ModelMinute
from monitor.models import WatchedModel

SLOTS = 48
SLOT_S = 1_800


def day_of_blocks(swarm: str, prefix: str, now: float) -> tuple[Heat | None, float]:
    """The picture, and when its first slot begins, in Unix seconds; None where the model was never stored."""
    first = (now // SLOT_S - SLOTS + 1) * SLOT_S
    known = WatchedModel.objects.of(swarm).filter(prefix=prefix).values_list("id", "num_blocks").first()
    if known is None:
        return None, first
    number, num_blocks = known
    until = moment(first) + timedelta(seconds=SLOTS * SLOT_S)
    rows = ModelMinute.objects.filter(model_id=number, ts__gte=moment(first), ts__lt=until)
    minutes = (
        Minute(int((ts.timestamp() - first) // SLOT_S), missing, thin, unread)
        for ts, missing, thin, unread in rows.values_list("ts", "missing", "thin", "unread")
    )
    return heat(num_blocks, SLOTS, minutes), first
