"""After a round of probes: what the answers of each server come to, out of the probes and into a table that pages can read.

The rules are `swarm.answers.judging`'s. Probes in, findings out; the findings of those who are not known any more go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Max, Q

from monitor.rates.evidence import Key, counting
from monitor.rates.models import AnswerFinding, Probe
from monitor.rates.questions import HIDDEN
from swarm.answers.judging import ROUNDS_REMEMBERED, Answer, Finding, Question, WrongAnswers, judge, with_wrong
from swarm.answers.prints import Print
from swarm.wire.spans import Span

ROUNDS_READ = ROUNDS_REMEMBERED + 2
"""A server misses a round now and then; 500 servers of one span are compared in 3 s."""


def refresh(swarm: str, now: datetime) -> dict[Key, Finding]:
    """Makes the findings of a swarm anew from the probes that count now."""
    rows = Probe.objects.filter(counting(now), swarm=swarm, round__isnull=False).order_by("at", "pk")
    newest = rows.aggregate(newest=Max("round"))["newest"] or 0
    compared = rows.filter(round__gt=newest - ROUNDS_READ, block_print__isnull=False)
    answered = rows.filter(Q(block_print__isnull=False) | ~Q(wrong="")).defer("block_print", "whole_print")
    found = with_wrong(judge(_answers(compared)), _wrong(answered))
    kept = [_row(swarm, key, finding, now) for key, finding in sorted(found.items())]
    with transaction.atomic():
        AnswerFinding.objects.filter(swarm=swarm).delete()
        AnswerFinding.objects.bulk_create(kept)
    return found


def _answers(rows: Iterable[Probe]) -> Iterable[Answer]:
    for row in rows:
        if not row.block_print or row.round is None or row.block is None:
            continue
        block = Question(row.prefix, row.round, Span(row.block, row.block + 1))
        yield Answer(row.peer_id, row.network or HIDDEN, block, _print(row.block_print))
        if row.whole_print and row.end - row.start > 1:
            whole = Question(row.prefix, row.round, Span(row.start, row.end), True, row.precision)
            yield Answer(row.peer_id, row.network or HIDDEN, whole, _print(row.whole_print))


def _wrong(rows: Iterable[Probe]) -> dict[Key, WrongAnswers]:
    """Those whose newest answer is wrong by itself, and how many of the newest are so in a row. `rows` oldest first."""
    streaks: dict[Key, list[Probe]] = defaultdict(list)
    for row in rows:
        if row.wrong:
            streaks[row.prefix, row.peer_id].append(row)
        else:
            streaks[row.prefix, row.peer_id] = []
    return {
        key: WrongAnswers(streak[-1].round or 0, Span(streak[-1].start, streak[-1].end), streak[-1].wrong, len(streak))
        for key, streak in streaks.items()
        if streak
    }


def _print(stored: list[float]) -> Print:
    return Print(stored[0], tuple(stored[1:]))


def _row(swarm: str, key: Key, finding: Finding, now: datetime) -> AnswerFinding:
    return AnswerFinding(
        swarm=swarm,
        prefix=key[0],
        peer_id=key[1],
        at=now,
        standing=finding.standing.value,
        round=finding.round,
        start=finding.blocks.start,
        end=finding.blocks.end,
        whole=finding.whole,
        against=finding.against,
        wrong=finding.wrong,
        times=finding.times,
    )
