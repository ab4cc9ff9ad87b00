"""What Prometheus scrapes: well formed, bounded, and silent about models when the monitor is blind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from monitor import queries
from monitor.store import store
from swarm.snapshot import Dropped, PeerState
from tests.monitor.seeding import NOW, announced, failure, online, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(client: Client, path: str = "/metrics") -> Samples:
    families = list(text_string_to_metric_families(client.get(path).content.decode()))
    assert all(family.documentation for family in families), "each series says what it is"
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)


def test_models_blocks_and_servers_are_counted(client: Client) -> None:
    servers = (online("a", 0, 2, 20.0), online("b", 0, 1, 5.0), announced("j", 1, 3, PeerState.JOINING), unreachable("u", 2, 3))
    seed(model(3, *servers), dropped=(Dropped("tiny-hf.0", "'x'", "subkey", ""),))
    seen = scrape(client)
    block = ("block", "1")
    of = ("model", "tiny-hf")
    assert seen["swarm_block_servers", (block, of, ("state", "online"))] == 1
    assert seen["swarm_block_servers", (block, of, ("state", "joining"))] == 1
    assert seen["swarm_block_servers", (("block", "2"), of, ("state", "online"))] == 0
    assert seen["swarm_block_throughput_tokens_per_second", (("block", "0"), of)] == 25
    assert ("swarm_block_throughput_tokens_per_second", (("block", "2"), of)) not in seen, "unknown is not zero"
    assert (seen["swarm_model_complete", (of,)], seen["swarm_model_min_redundancy", (of,)]) == (0, 0)
    states = ("online", "joining", "leaving", "unreachable", "gone")
    assert [seen["swarm_servers", (of, ("state", state))] for state in states] == [2, 1, 0, 1, 0]
    assert seen["swarm_dropped_records", (("reason", "subkey"),)] == 1
    assert seen["swarm_crawl_last_success_timestamp_seconds", ()] == NOW
    assert scrape(client, "/api/prometheus") == seen


def test_no_peer_and_no_name_is_a_label(client: Client) -> None:
    one = online("a", 0, 1)
    seed(model(1, replace(one, record=replace(one.record, public_name="Bob", version='2"\nevil 1'))))
    text = client.get("/metrics").content.decode()
    assert peer_id("a") not in text and "Bob" not in text and "evil" not in text


def test_series_of_models_vanish_when_the_monitor_is_blind(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(1, online("a", 0, 1)))
    store(failure(NOW + 30))
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 91)
    seen = scrape(client)
    assert {name for name, _ in seen} == {
        "swarm_crawl_last_success_timestamp_seconds",
        "swarm_stale",
        "swarm_crawl_ok",
        "swarm_crawl_overran",
        "swarm_held",
        "swarm_split",
        "swarm_crawl_duration_seconds",
        "swarm_keys_unread",
        "swarm_bootstrap_peers",
    }
    assert (seen["swarm_stale", ()], seen["swarm_crawl_ok", ()]) == (1, 0)


def test_an_unread_model_is_neither_complete_nor_broken(client: Client) -> None:
    seed(model(2, online("a", 0, 1), unread=frozenset({1})))
    assert ("swarm_model_complete", (("model", "tiny-hf"),)) not in scrape(client)


def test_before_any_crawl_the_monitor_says_that_it_is_stale(client: Client) -> None:
    assert scrape(client) == {("swarm_stale", ()): 1}


def test_openmetrics_is_spoken_to_those_who_ask(client: Client) -> None:
    seed(model(1, online("a", 0, 1)))
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(response.content.decode())} >= {"swarm_model_complete"}


def test_the_number_of_series_does_not_grow_with_the_servers(client: Client) -> None:
    def count(servers: int) -> int:
        made = sorted((online(f"s{n}", 0, 126) for n in range(servers)), key=lambda s: (s.span, s.peer_id))
        seed(*(replace(model(126, *made), prefix=prefix) for prefix in ("one", "two")))
        return len(scrape(client))

    few = count(5)
    assert count(50) == few < 2_000
