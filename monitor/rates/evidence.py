"""Rates in and out of Postgres: what a round of probes or a client's report brought, and what it says of each server."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Exists, Max, OuterRef, Q

from monitor.models import Crawl
from monitor.rates.choose import AHEAD_S, Past, Subject
from monitor.rates.facts import CanaryFacts, Rate, Told
from monitor.rates.models import AnswerFinding, CanaryRun, Probe, Witness
from monitor.rates.questions import Place
from monitor.rates.words import of_doubt
from swarm.answers.judging import Finding, Standing
from swarm.answers.prints import Print
from swarm.throughput import CLIENTS_NEEDED, Evidence
from swarm.wire.spans import Span

COUNTS_FOR = timedelta(hours=12)
"""Older figures say nothing: a server may have another machine by now."""
AHEAD = timedelta(seconds=AHEAD_S)
PROBES_COUNTED = 5
BUSY = "busy"
"""As `swarm.dht.forward.Why` says it, which web processes cannot import."""
KEPT_FOR = timedelta(days=1)
WITNESSES_OF_A_SERVER = 64
"""Kept at once: many more than are needed, few enough for a crowd not to fill the table."""

Key = tuple[str, str]
"""Prefix and peer id."""


@dataclass(frozen=True, slots=True)
class Seen:
    """`evidence`, what clients `told` and what the `answers` come to, by prefix and peer id; the newest canary of each model,
    by prefix."""

    evidence: Mapping[Key, Evidence]
    told: Mapping[Key, Told]
    canaries: Mapping[str, CanaryFacts]
    answers: Mapping[Key, Finding]


def note_probe(swarm: str, subject: Subject, at: float, found: Rate) -> Probe:
    return Probe.objects.create(
        swarm=swarm,
        prefix=subject.prefix,
        peer_id=subject.peer_id,
        at=datetime.fromtimestamp(at, UTC),
        start=subject.span.start,
        end=subject.span.end,
        tokens_per_s=found.tokens_per_s,
        why="" if found.tokens_per_s is not None else found.why or "not said",
        cache_tokens=found.cache_tokens,
        round=subject.round,
        block=subject.block,
        network=subject.network,
        precision=subject.precision[:16],
        wrong=found.wrong,
        block_print=_numbers(found.block),
        whole_print=_numbers(found.whole),
    )


def _numbers(kept: Print | None) -> list[float] | None:
    return [kept.norm, *kept.numbers] if kept is not None else None


def asked_in(swarm: str, round_: int) -> dict[Place, frozenset[str]]:
    """The networks of those who have answered in this round, by prefix and block."""
    asked: dict[Place, set[str]] = defaultdict(set)
    rows = Probe.objects.filter(swarm=swarm, round=round_, block_print__isnull=False)
    for prefix, block, network in rows.values_list("prefix", "block", "network"):
        assert block is not None  # kept with its print
        asked[prefix, block].add(network)
    return {place: frozenset(networks) for place, networks in asked.items()}


def has_room(swarm: str, prefix: str, peer_id: str, witness: str, now: datetime) -> bool:
    """Whether this witness's word on the server may be kept: who stands there already may always say it anew, and a word that
    does not count any more makes room."""
    rows = Witness.objects.filter(swarm=swarm, prefix=prefix, peer_id=peer_id)
    if rows.filter(witness=witness).exists() or rows.count() < WITNESSES_OF_A_SERVER:
        return True
    return rows.exclude(counting(now)).delete()[0] > 0


def counting(now: datetime) -> Q:
    """What was seen lately, by a clock that was right."""
    return Q(at__gt=now - COUNTS_FOR, at__lte=now + AHEAD)


def past(swarm: str, now: float | None = None) -> dict[Key, Past]:
    """The last attempt at each server, the most free cache that was seen of it on the blocks that it had then, and how often it
    was found busy since it was measured last. Three queries."""
    at = datetime.fromtimestamp(time.time() if now is None else now, UTC)
    rows = Probe.objects.filter(swarm=swarm, at__lte=at + AHEAD)
    seats = rows.values("prefix", "peer_id", "start", "end").annotate(most=Max("cache_tokens"))
    most = {(row["prefix"], row["peer_id"], row["start"], row["end"]): row["most"] for row in seats.order_by("peer_id")}
    last = rows.order_by("prefix", "peer_id", "-at", "-pk").distinct("prefix", "peer_id")
    measured_since = rows.filter(
        prefix=OuterRef("prefix"), peer_id=OuterRef("peer_id"), at__gt=OuterRef("at"), tokens_per_s__isnull=False
    )
    in_vain = rows.filter(~Exists(measured_since), why=BUSY).values("prefix", "peer_id").annotate(times=Count("pk"))
    busy = {(row["prefix"], row["peer_id"]): row["times"] for row in in_vain.order_by("prefix", "peer_id")}
    return {
        (row.prefix, row.peer_id): Past(
            row.at.timestamp(),
            row.tokens_per_s is not None,
            most[row.prefix, row.peer_id, row.start, row.end],
            busy.get((row.prefix, row.peer_id), 0),
        )
        for row in last
    }


def seen_of(swarm: str, now: datetime) -> Seen:
    """Of everything that counts now, in four queries."""
    probes: dict[Key, list[float]] = defaultdict(list)
    told: dict[Key, list[float]] = defaultdict(list)
    sums: dict[Key, Told] = defaultdict(lambda: Told(0, 0, 0))
    rates = Probe.objects.filter(counting(now), swarm=swarm, tokens_per_s__isnull=False).order_by("at", "pk")
    for prefix, peer_id, rate in rates.values_list("prefix", "peer_id", "tokens_per_s"):
        assert rate is not None  # the filter's word
        probes[prefix, peer_id].append(rate)
    for row in Witness.objects.filter(counting(now), swarm=swarm).order_by("witness"):
        before = sums[row.prefix, row.peer_id]
        sums[row.prefix, row.peer_id] = Told(
            before.witnesses + 1, before.requests + row.requests, before.failures + row.failures
        )
        if row.tokens_per_s is not None:
            # The operator's own canary needs no second witness.
            told[row.prefix, row.peer_id] += [row.tokens_per_s] * (CLIENTS_NEEDED if row.trusted else 1)
    answers = findings_of(swarm, now)
    doubts = {key: of_doubt(finding) for key, finding in answers.items() if finding.doubted}
    keys = probes.keys() | told.keys() | doubts.keys()
    evidence = {
        key: Evidence(tuple(probes[key][-PROBES_COUNTED:]), None, tuple(told[key]), doubts.get(key, "")) for key in sorted(keys)
    }
    return Seen(evidence, dict(sums), _canaries(swarm, now), answers)


def findings_of(swarm: str, now: datetime, peer_id: str = "") -> dict[Key, Finding]:
    """What the answers of each server, or of one, come to, as of the last round; nothing where that is too long ago."""
    rows = AnswerFinding.objects.filter(counting(now), swarm=swarm)
    return {
        (row.prefix, row.peer_id): Finding(
            Standing(row.standing), row.round, Span(row.start, row.end), row.whole, row.against, row.wrong, row.times
        )
        for row in (rows.filter(peer_id=peer_id) if peer_id else rows)
    }


def mark_of(swarm: str) -> tuple[object, ...]:
    """Changes with every rate that is measured and every finding; clients' reports, of which there may be thousands, are not
    looked through. Two queries."""
    found = AnswerFinding.objects.filter(swarm=swarm).aggregate(count=Count("pk"), newest=Max("at"))
    newest = Probe.objects.filter(swarm=swarm).order_by("-pk").values_list("pk", flat=True).first()
    return newest, found["count"], found["newest"]


def _canaries(swarm: str, now: datetime) -> dict[str, CanaryFacts]:
    runs = CanaryRun.objects.filter(counting(now), swarm=swarm).order_by("prefix", "-at", "-pk").distinct("prefix")
    return {
        run.prefix: CanaryFacts(run.outcome, run.at.timestamp(), tuple(run.peers), run.trusted_by, run.detail, run.seconds)
        for run in runs
    }


def forget(now: datetime) -> None:
    """What is old, where crawls bear the clock out, and what a clock that was ahead has dated."""
    believed = Crawl.objects.all().bear_out(now)
    for kind in (Probe, Witness, CanaryRun, AnswerFinding):
        kind.objects.filter(at__gt=now + AHEAD).delete()
        if believed:
            kind.objects.filter(at__lt=now - KEPT_FOR).delete()
