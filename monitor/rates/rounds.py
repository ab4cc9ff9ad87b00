"""One round of measuring: whom, one after another, and what came of it. The crawler is an argument, as in `monitor.rounds`."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Protocol

from django.core.cache import cache
from django.db import DataError, transaction
from redis.exceptions import RedisError

from monitor import queries
from monitor.privacy import digest
from monitor.rates import evidence, findings
from monitor.rates.choose import Subject, choose
from monitor.rates.facts import Rate
from monitor.rates.questions import Round, number_of
from monitor.rulings import staff
from swarm.errors import SwarmError

log = logging.getLogger(__name__)

ROUND_LIVES_S = 120
"""Longer than a round takes at worst; then a round whose worker died is over as well."""


class Measures(Protocol):
    def measure(self, subject: Subject) -> Rate: ...


def run(swarm: str, crawler: Measures) -> int:
    """How many servers were asked: none while the monitor does not see, or while another round runs. Two passes at once would
    measure each other."""
    now = time.time()
    # With those whose answers were wrong: how else would it be seen that they are right again?
    published = queries.watch_everyone(swarm, now, staff().rulings(swarm, now)).published
    if published is None or published.stale or not _alone(swarm):
        return 0
    asked = 0
    try:
        for subject in choose(published.snapshot, evidence.past(swarm), now, _round(swarm, now)):
            _note(swarm, subject, crawler.measure(subject))
            asked += 1
        findings.refresh(swarm, datetime.now(UTC))
    except SwarmError as error:
        log.warning("no rates measured: %s", error)
    finally:
        _over(swarm)
    return asked


def _note(swarm: str, subject: Subject, found: Rate) -> None:
    """What one server said must not end the round for all others, whatever it is; nor is that server first in the next."""
    try:
        with transaction.atomic():
            evidence.note_probe(swarm, subject, time.time(), found)
    except DataError as error:
        log.warning("what a probe of %s brought cannot be stored: %s", subject.peer_id, error)
        evidence.note_probe(swarm, subject, time.time(), Rate(None, "not said"))


def _round(swarm: str, now: float) -> Round:
    number = number_of(now)
    return Round(number, digest(f"questions {swarm}").encode(), evidence.asked_in(swarm, number))


def _alone(swarm: str) -> bool:
    try:
        return bool(cache.add(f"rates.round.{swarm}", 1, timeout=ROUND_LIVES_S))
    except RedisError:
        return False


def _over(swarm: str) -> None:
    try:
        cache.delete(f"rates.round.{swarm}")
    except RedisError as error:
        log.warning("Redis does not answer (%s); the next round waits %d s", error, ROUND_LIVES_S)
