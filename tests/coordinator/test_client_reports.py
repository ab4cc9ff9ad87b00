"""What our own client tells, against the real site: believed as anybody's word is, and shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from blockserver.client.notes import Notes
from blockserver.reporting import reporting
from monitor.rates.models import Witness
from swarm.throughput import Pass
from swarm.wire.reports import ReportReply
from tests.coordinator.seeding import seen
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site(live_server: Any) -> Iterator[str]:
    seen(model(4, server("a", 0, 4), server("b", 0, 4)))
    yield live_server.url
    connections.close_all()


def told(site: str, prefix: str, notes: Notes) -> ReportReply | None:
    """Not at the end, where a busy machine's answer may come too late."""

    async def tell() -> ReportReply | None:
        async with reporting(site, prefix, notes) as reporter:
            assert reporter is not None
            return await reporter.tell()

    return asyncio.run(tell())


def test_what_a_client_saw_stands_with_the_servers_it_is_about(site: str, client: Any) -> None:
    notes = Notes()
    for _ in range(4):
        notes.worked(peer_id("a"))
    notes.failed(peer_id("a"), "/ip4/10.1.2.3/tcp/31330 cannot be reached")
    notes.timed(peer_id("b"), Pass(100, 4, 4, 0.1, 0.0))
    notes.timed(peer_id("a"), Pass(100, 4, 4, 0.6, 0.0))
    notes.worked(peer_id("unknown"))

    reply = told(site, "tiny-hf", notes)
    assert reply is not None and reply.counted == 1
    kept = Witness.objects.get()
    assert (kept.peer_id, kept.requests, kept.failures, kept.trusted) == (peer_id("a"), 5, 1, False)
    assert kept.tokens_per_s == pytest.approx(2 * 100 * 4 / 0.5 * 1.32 / 5)
    assert "cannot be reached" in kept.last_error and "10.1.2.3" not in kept.last_error
    assert "1 client says that 1 of 5 requests failed" in client.get("/m/tiny-hf").content.decode()


def test_a_site_that_watches_no_such_model_counts_nothing_and_nobody_minds(site: str) -> None:
    notes = Notes()
    notes.worked(peer_id("a"))

    reply = told(site, "another", notes)
    assert reply is not None and reply.counted == 0
    assert not Witness.objects.exists()
