"""A site that has something of everything: models that run and do not, servers in every state, incidents, a lease, crawls that
failed and that were held. The clock stands."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from coordinator.models import Lease
from monitor import queries
from monitor.gate import Suspicion
from monitor.history import partitions, rollups
from monitor.history.minutes import moment
from monitor.history.models import Incident
from monitor.models import Crawl
from monitor.store import store
from swarm.snapshot import AddressState, Dropped, Model, PeerState
from tests.monitor.seeding import BOOT, NOW, announced, failure, online, report, unreachable
from tests.swarms import model, peer_id

LOOKS = 3
"""Crawls that succeed, half a minute apart; the last is at NOW."""


@pytest.fixture(autouse=True)
def _nothing_left_from_before(settings: Any) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": uuid.uuid4().hex}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What it shows is its one entry; a test may turn it."""
    shown = [NOW + 12]
    monkeypatch.setattr(queries.time, "time", lambda: shown[0])
    return shown


@pytest.fixture
def site(db: None, clock: list[float]) -> None:
    clock[0] = NOW + 12
    fill()


def fill() -> None:
    partitions.maintain(moment(NOW))
    store(report(NOW - 90, whole(NOW - 90), replace(broken(NOW - 90), servers=(online("a", 0, 6, at=NOW - 90),))))
    for look in range(LOOKS):
        at = NOW - 30 * (LOOKS - 1 - look)
        store(replace(report(at, whole(at), broken(at), dropped=(DROPPED,)), addresses=ADDRESSES))
    rollups.roll_up(moment(NOW))
    Lease.objects.create(
        swarm="main", prefix="broken-hf", peer_id=peer_id("new"), start=3, end=6, urgency="hole", reason_code="hole",
        reason="blocks 3–5 have no server", created_at=moment(NOW), expires_at=moment(NOW + 90),
    )  # fmt: skip


ADDRESSES = (
    AddressState("/ip4/203.0.113.5/tcp/1", BOOT, "ip4", "ok"),
    AddressState("/ip6/2001:db8::1/tcp/1", BOOT, "ip6", "tcp", "connection refused"),
)
DROPPED = Dropped("tiny-hf.1", "/ip4/203.0.113.7/tcp/1", "subkey", "'/ip4/203.0.113.7/tcp/1' is no peer id")


def whole(at: float = NOW) -> Model:
    return model(
        4, online("a", 0, 4, 20.0, at=at), online("b", 0, 4, None, at=at), announced("j", 2, 4, PeerState.JOINING, at=at)
    )


def broken(at: float = NOW) -> Model:
    dark = unreachable("dark", 3, 6, "failed to dial /ip4/203.0.113.7/tcp/31330", at=at)
    servers = (online("c", 0, 3, 8.0, at=at), online("a", 0, 2, at=at), dark, announced("l", 3, 6, PeerState.LEAVING, at=at))
    return replace(
        model(8, *servers, unread=frozenset({7})), prefix="broken-hf", repository="https://hub.example/org/broken-hf"
    )


def snapshot_id() -> int:
    newest = Crawl.objects.of("main").newest_success()
    assert newest is not None
    return newest.pk


def reads() -> list[str]:
    """An address of every read there is, on the filled site."""
    incident, crawl = Incident.objects.filter(kind="hole").first(), Crawl.objects.order_by("pk").first()
    lease = Lease.objects.get()
    assert incident is not None and crawl is not None
    v1 = [
        "state", "swarms", "bootstraps", "models", "models/tiny-hf", "models/broken-hf", "models/broken-hf/blocks", "gaps",
        "models/broken-hf/history", "servers", "servers?limit=1", f"servers/{peer_id('a')}", f"peers/{peer_id('a')}/uptime",
        "incidents", f"incidents/{incident.pk}", "crawls", "crawls?limit=1", f"crawls/{crawl.pk}", f"snapshots/{snapshot_id()}",
        "needed", "fits?model=tiny-hf&memory_gb=24", "what-if?model=broken-hf&add_blocks=3", "hints", f"hints/{lease.pk}",
        "openapi.json",
    ]  # fmt: skip
    return [*(f"/api/v1/{path}" for path in v1), "/api/v2/status.json", "/api/v2/summary.json"]


__all__ = ["LOOKS", "Suspicion", "failure", "fill", "reads", "snapshot_id"]
