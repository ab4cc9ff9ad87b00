"""Crawl reports to store, as a crawl at a given second would have made them."""

from __future__ import annotations

from dataclasses import replace

from monitor.crawl import CrawlReport
from monitor.store import store
from swarm.snapshot import Dropped, Model, Outcome, PeerState, Server, Snapshot, Visit
from tests.swarms import peer_id, server

SWARM = "main"
BOOT = peer_id("bootstrap")
NOW = 1_790_000_000.0
"""A moment in Unix seconds; the database keeps microseconds, whole seconds come back exactly."""


def visited(who: Server, outcome: Outcome = Outcome.ANSWERED, detail: str = "", at: float = NOW) -> Server:
    answered = outcome is Outcome.ANSWERED
    visit = Visit(who.peer_id, at, outcome, detail, 0.25 if answered else None, "2.3.0" if answered else None)
    return replace(who, visit=visit, expires_at=at + 60)


def online(name: str, start: int, end: int, throughput: float | None = 10.0, at: float = NOW) -> Server:
    return visited(server(name, start, end, PeerState.ONLINE, throughput), at=at)


def unreachable(name: str, start: int, end: int, detail: str = "no answer within 5 s", at: float = NOW) -> Server:
    return visited(server(name, start, end, PeerState.UNREACHABLE), Outcome.TIMEOUT, detail, at)


def announced(name: str, start: int, end: int, state: PeerState, at: float = NOW) -> Server:
    return replace(server(name, start, end, state), expires_at=at + 60)


def report(at: float, *models: Model, dropped: tuple[Dropped, ...] = (), swarm: str = SWARM) -> CrawlReport:
    snapshot = Snapshot(swarm, at, models, dropped)
    unread = sum(len(model.unread_blocks) for model in models)
    indexed = frozenset(model.prefix for model in models)
    return CrawlReport(swarm, at - 1, at + 1, snapshot, "", {BOOT: True}, unread, indexed)


def failure(at: float, reason: str = "p2pd does not answer", up: bool = False) -> CrawlReport:
    return CrawlReport(SWARM, at - 1, at + 1, failure=reason, bootstraps={BOOT: up})


def seed(*models: Model, at: float = NOW, dropped: tuple[Dropped, ...] = ()) -> None:
    store(report(at, *models, dropped=dropped))
