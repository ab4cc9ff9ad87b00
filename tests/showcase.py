"""A made-up swarm with ninety days behind it: what pictures show and what page tests look at. The same every time.

The large model is the one of which health.petals.dev's page was measured: 126 blocks, 466 servers, block 88 without one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from monitor.crawl import CrawlReport
from monitor.history import rollups
from monitor.history.minutes import Minutes, day_of, moment
from monitor.history.models import Incident, ModelDay, Peer, PeerDay, SwarmDay
from monitor.models import WatchedModel
from monitor.store import store
from swarm.snapshot import Dropped, Model, Outcome, PeerState, Server, Snapshot, Visit
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.swarms import peer_id

SWARM = "main"
LARGE, MIDDLE, SMALL = "Llama-3-1-405B-Instruct-hf", "Mixtral-8x22B", "tiny-hf"
LARGE_BLOCKS, LARGE_SERVERS, HOLE = 126, 466, 88
NAMES = ("lab-7", "night owl", "attic", "blue box", "<b>bold</b>", "uni-cluster-3", "my first server", "north", "rack 12", "")
BOOTS = tuple(peer_id(f"bootstrap {number}") for number in range(3))
VERSIONS = ("2.3.0", "2.2.0", "sepal 0.1.0", None)

_ANNOUNCED = {PeerState.JOINING: ServerState.JOINING, PeerState.LEAVING: ServerState.OFFLINE}


def made(name: str, span: Span, state: PeerState, at: float, chance: random.Random) -> Server:
    """One server with figures of its own; some do not share theirs."""
    speed = round(10 ** chance.uniform(1.7, 3.6), 1) if chance.random() > 0.03 else None
    cache = chance.randrange(0, 60_000) * 2 * len(span) if chance.random() > 0.1 else None
    version = chance.choice(VERSIONS)
    record = ServerRecord(
        _ANNOUNCED.get(state, ServerState.ONLINE),
        speed,
        span,
        public_name=chance.choice(NAMES) or None,
        version=version,
        inference_rps=speed,
        forward_rps=speed and speed * 12,
        network_rps=speed and speed * 40,
        torch_dtype="bfloat16",
        quant_type=chance.choice(("nf4", "int8", "none")),
        using_relay=chance.choice((True, False, False, None)),
        cache_tokens_left=cache,
    )
    outcome = {PeerState.ONLINE: Outcome.ANSWERED, PeerState.UNREACHABLE: Outcome.TIMEOUT}.get(state)
    answered = outcome is Outcome.ANSWERED
    detail = "" if answered else "no answer within 5 s"
    visit = (
        Visit(
            peer_id(name),
            at - 1,
            outcome,
            detail,
            round(chance.uniform(0.02, 0.6), 3) if answered else None,
            version if answered else None,
            cache,
            span,
            ("/ip4/…/tcp/31330",),
            "relay" if record.using_relay else "direct",
        )
        if outcome
        else None
    )
    return Server(peer_id(name), span, state, record, at + 60, visit)


def large(at: float, *, holed: bool = True) -> Model:
    chance = random.Random(405)
    servers = []
    for number in range(LARGE_SERVERS):
        length = min(24, 1 + int(chance.expovariate(1 / 9)))
        start = chance.randrange(0, LARGE_BLOCKS - length + 1)
        state = chance.choices((PeerState.ONLINE, PeerState.JOINING, PeerState.UNREACHABLE, PeerState.LEAVING), (88, 5, 6, 1))[
            0
        ]
        span = Span(start, start + length)
        if holed and state is PeerState.ONLINE and HOLE in span:
            span = (
                Span(start, HOLE)
                if HOLE - start >= start + length - HOLE - 1 and start < HOLE
                else Span(HOLE + 1, start + length + 1)
            )
            span = Span(span.start, min(span.end, LARGE_BLOCKS))
        servers.append(made(f"large {number}", span, state, at, chance))
    lost = made("lost", Span(HOLE - 8, HOLE + 5), PeerState.UNREACHABLE if holed else PeerState.ONLINE, at, chance)
    ordered = tuple(sorted((*servers, lost), key=lambda server: (server.span, server.peer_id)))
    return Model(LARGE, LARGE_BLOCKS, "https://huggingface.co/meta-llama/Llama-3.1-405B-Instruct", ordered)


def middle(at: float) -> Model:
    chance = random.Random(22)
    spans = [(0, 20), (0, 30), (18, 40), (20, 38), (28, 56), (38, 53), (40, 56), (0, 12), (10, 24), (24, 40), (12, 20)]
    servers = [made(f"middle {n}", Span(*span), PeerState.ONLINE, at, chance) for n, span in enumerate(spans)]
    servers += [
        made("middle j", Span(50, 56), PeerState.JOINING, at, chance),
        made("middle u", Span(4, 14), PeerState.UNREACHABLE, at, chance),
    ]
    return Model(
        MIDDLE,
        56,
        "https://huggingface.co/mistralai/Mixtral-8x22B-v0.1",
        tuple(sorted(servers, key=lambda s: (s.span, s.peer_id))),
    )


def small(at: float) -> Model:
    chance = random.Random(1)
    servers = [made(f"small {n}", Span(0, 12), PeerState.ONLINE, at, chance) for n in range(3)]
    pings = {servers[n].peer_id: 0.021 * (n + 1) for n in (1, 2)}
    first = replace(servers[0], record=replace(servers[0].record, next_pings=pings))
    return Model(SMALL, 12, None, tuple(sorted((first, *servers[1:]), key=lambda s: (s.span, s.peer_id))))


def crawled(at: float, *models: Model, dropped: tuple[Dropped, ...] = ()) -> CrawlReport:
    snapshot = Snapshot(SWARM, at, models, dropped)
    bootstraps = {BOOTS[0]: True, BOOTS[1]: True, BOOTS[2]: False}
    return CrawlReport(SWARM, at - 3.2, at + 0.4, snapshot, "", bootstraps, 0, frozenset(m.prefix for m in models))


def seed_all(now: float) -> None:
    """Everything: the swarm as it is, a day of minutes, ninety days of history, incidents of each kind."""
    dropped = (Dropped(f"{SMALL}.3", "'12D3KooWnot-an-id'", "subkey", "it is no peer id"),)
    whole = now - 1_410
    store(crawled(whole, large(whole, holed=False), middle(whole), small(whole)))
    _past_incidents({row.prefix: row for row in WatchedModel.objects.all()}, now)
    for back in (1_380, 60, 5):
        store(crawled(now - back, large(now - back), middle(now - back), small(now - back), dropped=dropped))
    # Between them others ran, that nothing more would be learnt from.
    Incident.objects.filter(kind="blind", started_before__gt=moment(now - 2_000)).delete()
    Incident.objects.filter(kind="hole", ended_before=None).update(
        started_after=moment(whole), started_before=moment(now - 1_380)
    )
    rollups.roll_up(moment(now))
    history(now)


def history(now: float) -> None:
    chance = random.Random(90)
    rows = {row.prefix: row for row in WatchedModel.objects.all()}
    today = day_of(now)
    days = [today - timedelta(days=back) for back in range(89, 0, -1)]
    SwarmDay.objects.bulk_create(
        [SwarmDay(swarm=SWARM, day=day, watched=_watched(day, today), last_observed_at=moment(now)) for day in days],
        ignore_conflicts=True,
    )
    for prefix, trouble in ((LARGE, 0.2), (MIDDLE, 0.1), (SMALL, 0.02)):
        ModelDay.objects.bulk_create(
            [_model_day(rows[prefix], day, today, trouble, chance) for day in days], ignore_conflicts=True
        )
    _peer_days(rows, days, now, chance)
    _minutes(rows, now, chance)


def _watched(day, today) -> Minutes:  # type: ignore[no-untyped-def]
    back = (today - day).days
    if back == 40:
        return Minutes.of(range(400))
    return Minutes.of(range(1_440))


def _model_day(row: WatchedModel, day, today, trouble: float, chance: random.Random) -> ModelDay:  # type: ignore[no-untyped-def]
    watched = _watched(day, today)
    begun = chance.randrange(0, 1_100)
    broken = range(begun, begun + chance.choice((4, 12, 40, 160))) if chance.random() < trouble else range(0)
    thin = range(begun + 170, begun + 300) if chance.random() < 2 * trouble else range(0)
    within = {minute for minute in range(1_440) if minute in watched}
    return ModelDay(
        model=row,
        day=day,
        watched=watched,
        broken=Minutes.of(set(broken) & within),
        thin=Minutes.of(set(thin) & within),
    )


def _peer_days(rows: dict[str, WatchedModel], days: list, now: float, chance: random.Random) -> None:  # type: ignore[type-arg]
    known = {peer.peer_id: peer for peer in Peer.objects.all()}
    made_up = []
    for name, prefix in (("lost", LARGE), *((f"middle {n}", MIDDLE) for n in range(5)), ("small 0", SMALL)):
        for day in days[-60:]:
            away = chance.randrange(0, 1_300) if chance.random() < 0.2 else None
            up = Minutes.of(set(range(1_440)) - (set(range(away, away + 90)) if away is not None else set()))
            speed = [round(300 + 60 * chance.random(), 1) for _ in range(24)]
            made_up.append(
                PeerDay(
                    model=rows[prefix],
                    peer=known[peer_id(name)],
                    day=day,
                    up=up,
                    first_minute=0,
                    throughput=speed,
                    block_minutes=[480] * 24,
                    cache_mean=[round(20 * rate) for rate in speed],
                    cache_least=[round(9 * rate) for rate in speed],
                )
            )
    PeerDay.objects.bulk_create(made_up, ignore_conflicts=True)


def _minutes(rows: dict[str, WatchedModel], now: float, chance: random.Random) -> None:
    """A day of minutes for the picture of time by block and for servers' timelines, written as the samples are."""
    from django.db import connection

    first = now // 60 * 60 - 1_439 * 60
    lines = []
    for prefix, blocks in ((LARGE, LARGE_BLOCKS), (MIDDLE, 56), (SMALL, 12)):
        spots = [
            (chance.randrange(0, 1_200), chance.randrange(20, 200), chance.randrange(0, blocks - 4), chance.choice("mt"))
            for _ in range(9)
        ]
        for minute in range(1_410):
            if 500 <= minute < 560:
                continue
            on = [(start, kind) for begun, length, start, kind in spots if begun <= minute < begun + length]
            missing = {block for start, kind in on if kind == "m" for block in range(start, start + 2)}
            thin = {block for start, kind in on if kind == "t" for block in range(start, start + 4)} - missing
            lines.append((rows[prefix].pk, first + minute * 60, _ranges(missing), _ranges(thin)))
    numbers = {name: Peer.objects.get(peer_id=peer_id(name)).pk for name in ("lost", "middle 0", "small 0")}
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO monitor_modelminute (model_id, ts, missing, thin, unread, servers)"
            " VALUES (%s, to_timestamp(%s), %s, %s, '{}', 9) ON CONFLICT DO NOTHING",
            lines,
        )
        for name, prefix in (("lost", LARGE), ("middle 0", MIDDLE), ("small 0", SMALL)):
            cursor.executemany(
                'INSERT INTO monitor_peersample (model_id, peer_id, ts, start, "end", state, up, throughput)'
                " VALUES (%s, %s, to_timestamp(%s), %s, %s, %s, %s, 320) ON CONFLICT DO NOTHING",
                [
                    (rows[prefix].pk, numbers[name], first + minute * 60, *place, state, state == "online")
                    for minute in range(1_410)
                    if not 500 <= minute < 560
                    for place, state in (_where(minute),)
                ],
            )


def _where(minute: int) -> tuple[tuple[int, int], str]:
    if minute < 300:
        return (0, 8), "online"
    if minute < 318:
        return (2, 10), "joining"
    if minute < 900:
        return (2, 10), "online"
    if minute < 915:
        return (0, 8), "joining"
    return (0, 8), "unreachable" if 1_100 <= minute < 1_130 else "online"


def _ranges(blocks: Iterable[int]) -> str:
    from monitor.history.fields import blocks_of

    return blocks_of(set(blocks))


def _past_incidents(rows: dict[str, WatchedModel], now: float) -> None:
    def at(back: float) -> datetime:
        return datetime.fromtimestamp(now - back, UTC)

    day = 86_400.0
    for back, prefix, kind, blocks, lasted in (
        (66 * day, SMALL, "thin", [3], 4_000.0),
        (40 * day, None, "blind", [], 0.7 * day),
        (31 * day, LARGE, "hole", list(range(12, 30)), 9_000.0),
        (9.2 * day, LARGE, "hole", [88], 600.0),
        (9 * day, MIDDLE, "thin", [53, 54, 55], 7_000.0),
        (3 * day, LARGE, "hole", [40, 41], 1_500.0),
    ):
        Incident.objects.create(
            swarm=SWARM,
            model=rows[prefix] if prefix else None,
            kind=kind,
            blocks=blocks,
            started_after=at(back + 30),
            started_before=at(back),
            confirmed_at=at(back - 30),
            bad_at=at(back - lasted),
            ended_before=at(back - lasted - 30),
            left=[{"peer_id": peer_id("lost"), "how": "stopped answering", "at": now - back, "blocks": "blocks 80–92"}]
            if prefix
            else [],
            restored=[{"peer_id": peer_id("middle 0"), "blocks": "blocks 40–41"}] if prefix else [],
            reason="" if prefix else "no bootstrap peer answered",
        )
