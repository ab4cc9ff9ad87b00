"""What people did on the made-up swarm: hints given and what became of them, an alert, exported days. The same every time."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from coordinator import explain
from coordinator.models import Lease, Phase, Tally
from monitor.alerts.models import Delivery, Subscription
from monitor.exports.models import Export
from monitor.history.minutes import moment
from swarm.placement import Circumstances, Placement
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import HintRequest, ReasonCode, SpanDocument
from swarm.wire.spans import Span
from tests.showcase import HOLE, LARGE, MIDDLE, SMALL, SWARM, large
from tests.swarms import peer_id

SECRET = "x" * 32
HINT = uuid.UUID(int=405)
"""The one that is followed at this moment; its page has all that a hint's page can have."""
FOLLOWER = next(server for server in large(0.0).servers if server.state is PeerState.JOINING and HOLE in server.span)
"""Who follows it: it is loading the block that nobody serves."""


def seed_people(now: float) -> None:
    _hints(now)
    _tallies(moment(now))
    _alert(moment(now))
    _exports(moment(now))


def _hints(now: float) -> None:
    at = moment(now)
    span, origin = FOLLOWER.span, Span(60, 69)
    model = _before(large(now), origin)
    asked = HintRequest(
        peer=FOLLOWER.peer_id,
        model=LARGE,
        num_blocks_max=len(span),
        num_blocks=len(span),
        current=SpanDocument(start=origin.start, end=origin.end),
    )
    _lease(
        FOLLOWER.peer_id,
        LARGE,
        span,
        origin,
        at - timedelta(seconds=395),
        Phase.ACCEPTED,
        f"block {HOLE} has no server",
        pk=HINT,
        progress=0.62,
        urgency="hole",
        reason_code="hole",
        renewals=4,
        inputs=explain.inputs(
            explain.Basis(model, at, (), _known(model)),
            asked,
            Placement(span, ReasonCode.HOLE, f"block {HOLE} has no server"),
            lambda peers: dict.fromkeys(peers[1:4], "it does not ask for hints"),
        ),
    )
    past = [
        ("middle 3", MIDDLE, Span(20, 38), Span(12, 30), 9, Phase.DONE, "blocks 30–37 have one server", ""),
        ("large 40", LARGE, Span(82, 96), None, 31, Phase.DECLINED, f"block {HOLE} has no server", "the server had 3 sessions"),
        ("large 8", LARGE, Span(85, 91), Span(2, 8), 44, Phase.EXPIRED, f"block {HOLE} has no server", "not accepted in 90 s"),
        ("small 1", SMALL, Span(0, 12), None, 75, Phase.DONE, "blocks 0–11 have one server", ""),
        (
            "middle 7",
            MIDDLE,
            Span(0, 12),
            Span(28, 40),
            118,
            Phase.STALE,
            "blocks 0–11 have one server",
            "they have two",
        ),
    ]
    for name, prefix, blocks, before, minutes, phase, why, closed in past:
        given = at - timedelta(minutes=minutes)
        closing = {"closed_at": given + timedelta(seconds=140), "close_reason": closed}
        _lease(peer_id(name), prefix, blocks, before, given, phase, why, urgency="thin", reason_code="redundancy", **closing)


def _before(model: Model, origin: Span) -> Model:
    """When the hint was given: nobody was loading the block yet."""
    follower = replace(FOLLOWER, span=origin, state=PeerState.ONLINE)
    others = (s for s in model.servers if s.state is not PeerState.JOINING or HOLE not in s.span)
    return replace(model, servers=(follower, *others))


def _known(model: Model) -> Circumstances:
    """A server that boasts, and two in one network."""
    first, second, third = (server.peer_id for server in model.servers[1:4])
    ages = {server.peer_id: 86_400.0 for server in model.servers}
    reported = {server.peer_id: server.record.throughput for server in model.servers}
    rates = {peer: min(rate, 900.0) for peer, rate in reported.items() if rate is not None}
    return Circumstances(ages_s=ages, rates={**rates, third: 20.0}, operators={first: "one", second: "one"})


def _lease(
    peer: str, prefix: str, span: Span, origin: Span | None, at: datetime, phase: Phase, reason: str, **more: object
) -> None:
    accepted = at + timedelta(seconds=3) if phase in (Phase.ACCEPTED, Phase.DONE) else None
    Lease.objects.create(
        swarm=SWARM,
        prefix=prefix,
        peer_id=peer,
        start=span.start,
        end=span.end,
        origin_start=origin.start if origin else None,
        origin_end=origin.end if origin else None,
        created_at=at,
        expires_at=at + timedelta(seconds=900),
        accepted_at=accepted,
        phase=phase,
        reason=reason,
        plan_version=7,
        cost_s=120.0,
        **more,
    )


def _tallies(now: datetime) -> None:
    chance = random.Random(7)
    usual = {"offered": 14, "followed": 11, "declined": 1, "ignored": 1, "broken off": 1, "stale": 1, "stay-scarce": 900}
    for back in range(6):
        for outcome, count in usual.items():
            number = chance.randrange(count // 2, count + 3)
            Tally.objects.create(
                swarm=SWARM, prefix=LARGE, day=(now - timedelta(days=back)).date(), outcome=outcome, count=number
            )


def _alert(now: datetime) -> None:
    subscription = Subscription.objects.create(
        swarm=SWARM,
        topic="redundancy",
        prefix=MIDDLE,
        target=2,
        way="webhook",
        address="https://hooks.example/sepal",
        secret=SECRET,
        signing_key="k" * 32,
        created_at=now - timedelta(days=9),
        confirmed_at=now - timedelta(days=9),
    )
    Delivery.objects.create(
        subscription=subscription,
        news="fired",
        created_at=now - timedelta(hours=3),
        due_at=now - timedelta(hours=3),
        message={"title": f"{MIDDLE}: 2 blocks have fewer than 2 servers"},
        sent_at=now - timedelta(hours=3),
        attempts=1,
    )


def _exports(now: datetime) -> None:
    for back in range(1, 6):
        body = b"x" * (90_000 + 1_777 * back)
        Export.objects.create(
            day=(now - timedelta(days=back)).astimezone(UTC).date(),
            made_at=now,
            lines=2_100 + 13 * back,
            size=len(body),
            sha256=f"{back:x}4" * 32,
            body=body,
        )
