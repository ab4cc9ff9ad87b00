"""Looks at a swarm for everyone who wants to be told, and puts what is new into the outbox.

May be run at any time, and again.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection, transaction

from monitor import queries
from monitor.alerts import messages, outbox
from monitor.alerts.conditions import Look, Wish, finding
from monitor.alerts.models import AlarmRow, Subscription
from monitor.alerts.rules import CONFIRMED_ALREADY, Alarm, Finding, Topic, advance
from monitor.history.incidents import confirmed
from monitor.history.minutes import moment
from monitor.history.rules import Kind
from monitor.history.words import title
from monitor.published import Watch


def judge(swarm: str, now: float | None = None) -> int:
    """How many messages were put into the outbox."""
    if not Subscription.objects.active().filter(swarm=swarm).exists():
        return 0
    with transaction.atomic():
        _one_judge(swarm)
        look = take_look(queries.watch_everyone(swarm, now))
        known = {row.subscription_id: row for row in AlarmRow.objects.filter(subscription__swarm=swarm, ended_at=None)}
        wanted = Subscription.objects.active().filter(swarm=swarm).order_by("pk")
        told = [_judge_one(subscription, look, known.get(subscription.pk)) for subscription in wanted]
    return sum(told)


def take_look(seen: Watch) -> Look:
    still_open = list(confirmed(seen.swarm).filter(ended_before__isnull=True))
    holes = {row.model.prefix: title(row) for row in still_open if row.kind == Kind.HOLE and row.model}
    blind = next((row for row in still_open if row.kind == Kind.BLIND), None)
    return Look(seen, holes, blind.started_before.timestamp() if blind else None)


def wish_of(subscription: Subscription) -> Wish:
    return Wish(Topic(subscription.topic), subscription.prefix, subscription.peer_id, subscription.target)


def _judge_one(subscription: Subscription, look: Look, row: AlarmRow | None) -> bool:
    found = finding(wish_of(subscription), look)
    before = _alarm(row) if row else None
    after, news = advance(before, found, steady=Topic(subscription.topic) in CONFIRMED_ALREADY)
    if after == before:
        return False
    _write(subscription, row, before, after, found)
    if news is None:
        return False
    since = after.bad_at if after else before.bad_at if before else found.at
    message = messages.of_news(subscription, news, found, since, look.seen.read_at)
    outbox.put(subscription, news, message, datetime.now(UTC))
    return True


def _alarm(row: AlarmRow) -> Alarm:
    good_at = row.good_at.timestamp() if row.good_at else None
    return Alarm(row.bad_at.timestamp(), row.fired_at is not None, row.level, good_at)


def _write(subscription: Subscription, row: AlarmRow | None, before: Alarm | None, after: Alarm | None, found: Finding) -> None:
    if after is None and row is not None:
        if before is not None and before.fired:
            row.ended_at = moment(found.at)
            row.save()
        else:
            row.delete()
    if after is None:
        return
    row = row or AlarmRow(subscription=subscription)
    row.bad_at, row.level = moment(after.bad_at), after.level
    row.good_at = moment(after.good_at) if after.good_at is not None else None
    if found.bad:
        row.words = found.words
    if after.fired and row.fired_at is None:
        row.fired_at = moment(found.at)
    row.save()


def _one_judge(swarm: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"monitor.alerts {swarm}"])
