"""Records in a real DHT that broke the readers of others, from the DHT to the metrics: rates of zero, and versions that write
lines of their own. The other rows of that list are in tests/swarm (test_dht, test_hostile) and in test_crawl."""

from __future__ import annotations

import time

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from monitor import queries, store
from monitor.crawl import CrawlReport, crawl
from monitor.crawler import NodeReader
from swarm.dht.background import BackgroundLoop
from swarm.snapshot import PeerState
from swarm.wire.codec import encode
from swarm.wire.spans import Span
from tests.loopback import nodes, plant, reader_of
from tests.monitor.test_crawl import serve
from tests.swarms import peer_id

pytestmark = pytest.mark.django_db

FORGED_LINE = 'swarm_forged{model="m"} 1'
VERSION = f'2.3"}} 1\n{FORGED_LINE}\n'
"""As it stood in a label it ended the line and began another one."""


async def seen_from_a_dht() -> CrawlReport:
    async with nodes(3) as (boot, alice, stranger), reader_of(boot) as reader:
        await serve(alice, Span(0, 6), Span(0, 6))
        details = {"start_block": 0, "end_block": 6, "inference_rps": 0.0, "forward_rps": -1.0, "network_rps": 0.0}
        record = encode((2, 10.0, {**details, "version": VERSION, "public_name": VERSION}))
        for block in range(6):
            for at in (boot, alice):
                assert await plant(stranger, at, f"m.{block}", peer_id("forger"), record)
        return await crawl("main", NodeReader(reader), time.time, {})


def test_rates_of_zero_and_versions_with_line_ends_do_no_harm_anywhere(client: Client) -> None:
    loop = BackgroundLoop("swarm-of-the-test")
    try:
        report = loop.run(seen_from_a_dht(), 60)
    finally:
        loop.stop()
    assert report.snapshot is not None
    (model,) = report.snapshot.models
    by_peer = {server.peer_id: server for server in model.servers}
    forger = by_peer.pop(peer_id("forger"))
    record = forger.record
    assert (record.inference_rps, record.forward_rps, record.network_rps) == (None, None, None)
    assert [server.state for server in by_peer.values()] == [PeerState.ONLINE], "beside it, the good one"
    store.store(report)
    metrics = client.get("/metrics").content.decode()
    samples = [sample.name for family in text_string_to_metric_families(metrics) for sample in family.samples]
    assert samples and "swarm_forged" not in samples
    assert not any(line.startswith("swarm_forged") for line in metrics.splitlines())
    for address in ("/m/m", f"/p/{peer_id('forger')}", "/api/v1/models/m", "/metrics?swarm=main"):
        assert "\nswarm_forged" not in client.get(address).content.decode()
    assert queries.watch("main").published is not None
