"""Whatever strangers write under a swarm's keys: the crawl is stored, the history goes on, and every page can be read."""

from __future__ import annotations

import asyncio

import pytest
from django.db import transaction
from django.test import Client
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from monitor.crawl import CrawlReport, crawl
from monitor.history.models import PeerSample
from monitor.models import Crawl, CrawlOutcome
from monitor.store import store
from swarm.snapshot import Entry, Outcome, Reading, Visit
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span
from tests.monitor.test_crawl import MadeUpReader
from tests.strategies import EVIL, WORST, whatever
from tests.swarms import peer_id

NOW = 1_790_000_000.0
FIELDS = ("start_block", "end_block", "public_name", "version", "adapters", "torch_dtype", "quant_type", "using_relay",
          "cache_tokens_left", "next_pings", "network_rps", "forward_rps", "inference_rps", "show_public_name")  # fmt: skip
PINGS = st.dictionaries(st.just(peer_id("alice")), st.floats() | EVIL)
DETAILS = st.dictionaries(st.sampled_from(FIELDS), EVIL | whatever | PINGS)
RECORDS = st.tuples(st.sampled_from([0, 1, 2]), st.floats(0, 1e9) | EVIL, DETAILS) | whatever
INDEX_ENTRIES = st.fixed_dictionaries({"num_blocks": st.just(2) | EVIL | whatever, "repository": whatever}) | whatever


class Scribbled(MadeUpReader):
    """An honest model of two blocks that alice serves, and what strangers wrote for and beside it."""

    def __init__(self, record: object, entry: object, subkey: object) -> None:
        honest = (2, 10.0, {"start_block": 0, "end_block": 2})
        names = (peer_id("mallory"), subkey)
        entries = [Entry(peer_id("alice"), honest, NOW + 60), *(Entry(name, record, NOW + 60) for name in names)]
        keys = {block_uid("m", block): entries for block in range(2)}
        super().__init__({}, {"m": Reading(keys)})
        self.entries = [Entry("m", ModelRecord(2, None).to_wire(), NOW + 60), Entry(subkey, entry, NOW + 60)]

    async def read_index(self) -> Reading:
        return Reading({MODELS_KEY: self.entries})

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        return Visit(peer, NOW, Outcome.ANSWERED if peer == peer_id("alice") else Outcome.REFUSED, "\x00\u202e refused")


PLAIN = {"start_block": 0, "end_block": 2, "version": "2.3.0"}
EACH = [
    *((2, value, PLAIN) for value in WORST),
    *((value, 1.0, PLAIN) for value in WORST),
    *((2, 1.0, {**PLAIN, field: value}) for field in FIELDS for value in WORST),
    *((2, 1.0, {**PLAIN, "next_pings": {peer_id("alice"): value}}) for value in WORST),
    *((2, 1.0, {**PLAIN, "adapters": (value,)}) for value in WORST),
]


@pytest.mark.slow
@pytest.mark.django_db
def test_the_worst_values_in_each_place_at_once_spoil_nothing(client: Client) -> None:
    names = [peer_id(f"stranger {n}") for n in range(len(EACH))]
    written = [Entry(name, record, NOW + 60) for name, record in zip(names, EACH, strict=True)]
    reader = Scribbled(None, None, None)
    keys = [block_uid("m", block) for block in range(2)]
    reader.readings = {"m": Reading({key: [*reader.readings["m"].entries[key], *written] for key in keys})}
    sizes = [Entry(f"x{n}", {"num_blocks": value, "repository": value}, NOW + 60) for n, value in enumerate(WORST)]
    reader.entries += [*sizes, *(Entry(value, ModelRecord(2, None).to_wire(), NOW + 60) for value in WORST)]
    store(crawled(reader))
    assert Crawl.objects.get().outcome == CrawlOutcome.SUCCEEDED
    assert PeerSample.objects.filter(peer__peer_id=peer_id("alice"), up=True).count() == 1
    # Each page looks at everybody, so not all of them.
    looked_at = names[-2 * len(WORST) :: 2] + names[::23]
    for path in ("/", "/m/m", *(f"/p/{name}" for name in looked_at), "/api/v1/state", "/metrics"):
        assert client.get(path).status_code in (200, 404), path


def crawled(reader: MadeUpReader) -> CrawlReport:
    return asyncio.run(crawl("main", reader, lambda: NOW, {}))


@pytest.mark.slow
@pytest.mark.django_db
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=RECORDS, entry=INDEX_ENTRIES, subkey=EVIL | whatever | st.just(peer_id("eve")))
def test_whatever_strangers_write_the_crawl_is_stored_and_shown(
    client: Client, record: object, entry: object, subkey: object
) -> None:
    note(repr((record, entry, subkey)))
    with transaction.atomic():
        store(crawled(Scribbled(record, entry, subkey)))
        assert Crawl.objects.get().outcome == CrawlOutcome.SUCCEEDED
        assert PeerSample.objects.filter(peer__peer_id=peer_id("alice"), up=True).count() == 1
        for path in ("/", "/m/m", f"/p/{peer_id('alice')}", f"/p/{peer_id('mallory')}", "/api/v1/state", "/metrics"):
            assert client.get(path).status_code in (200, 404), path
        transaction.set_rollback(True)
