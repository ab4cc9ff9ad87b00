"""What Prometheus scrapes: well formed, bounded, and silent about models when the monitor is blind."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from coordinator.desk.models import Kind, Ruling
from coordinator.tallies import tally
from monitor import exposition, queries
from monitor.feeds.publish import publish
from monitor.models import Crawl
from monitor.store import store
from swarm.snapshot import Dropped, PeerState, Server
from tests.coordinator.desk.people import person
from tests.monitor.seeding import NOW, SWARM, announced, failure, online, seed, unreachable
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
    assert seen["swarm_block_throughput_tokens_per_second", (("block", "0"), of)] == 15, "new servers count as usual ones"
    assert seen["swarm_block_reported_throughput_tokens_per_second", (("block", "0"), of)] == 25
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


OF_CRAWLS = {
    "swarm_crawl_last_success_timestamp_seconds",
    "swarm_crawl_interval_seconds",
    "swarm_stale",
    "swarm_crawl_ok",
    "swarm_crawl_overran",
    "swarm_held",
    "swarm_split",
    "swarm_crawl_last_duration_seconds",
    "swarm_keys_unread",
    "swarm_bootstrap_peers",
    "swarm_tasks_waiting",
    "swarm_crawls_total",
    "swarm_crawl_duration_seconds_bucket",
    "swarm_crawl_duration_seconds_sum",
    "swarm_crawl_duration_seconds_count",
}
VERDICTS = {"swarm_model_complete", "swarm_model_min_redundancy", "swarm_model_routable"}


def names_after(client: Client, monkeypatch: pytest.MonkeyPatch, seconds: float) -> set[str]:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + seconds)
    return {name for name, _ in scrape(client)}


def test_verdicts_end_with_the_third_missed_crawl_and_all_series_of_models_with_the_fifth(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(model(1, online("a", 0, 1)))
    store(failure(NOW + 30))
    assert names_after(client, monkeypatch, 89) >= VERDICTS
    blind = names_after(client, monkeypatch, 91)
    assert not blind & VERDICTS and "swarm_block_servers" in blind and "servers_num" in blind
    assert scrape(client)["swarm_stale", ()] == 1
    assert names_after(client, monkeypatch, 149) >= {"swarm_block_servers", "swarm_servers", "n_blocks"}
    assert names_after(client, monkeypatch, 151) == OF_CRAWLS
    seen = scrape(client)
    assert (seen["swarm_stale", ()], seen["swarm_crawl_ok", ()]) == (1, 0)
    assert seen["swarm_crawl_last_success_timestamp_seconds", ()] == NOW, "a moment, and no age that stops with the exporter"


def test_an_unread_model_is_neither_complete_nor_broken(client: Client) -> None:
    seed(model(2, online("a", 0, 1), unread=frozenset({1})))
    assert ("swarm_model_complete", (("model", "tiny-hf"),)) not in scrape(client)


def test_before_any_crawl_the_monitor_says_that_it_is_stale(client: Client) -> None:
    seen = scrape(client)
    assert seen["swarm_stale", ()] == 1 and ("swarm_crawl_last_success_timestamp_seconds", ()) not in seen
    assert {name for name, _ in seen} <= OF_CRAWLS


BASE_UNITS = ("_seconds", "_tokens", "_tokens_per_second", "_bytes", "_ratio")
NOT_BASE = re.compile(r"_(milliseconds|ms|minutes|hours|percent|kb|mb|kilobytes|megabytes)(_|$)")


def test_names_are_well_formed_in_both_formats(client: Client) -> None:
    seed(model(2, pinging("a", 0, 2, b=0.1)))
    publish(SWARM)
    plain = client.get("/metrics", headers={"Accept": "text/plain"})
    assert plain["Content-Type"].startswith("text/plain; version=")
    open_metrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert open_metrics["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert open_metrics.content.endswith(b"# EOF\n")
    assert plain["Vary"] == open_metrics["Vary"]
    families = list(parse_openmetrics(open_metrics.content.decode()))
    for family in families:
        assert family.documentation and family.type != "unknown", family.name
        if family.name in OLD_NAMES:
            continue
        assert family.name.startswith("swarm_") and not NOT_BASE.search(family.name), family.name
        for sample in family.samples:
            assert sample.timestamp is None, "the time of a scrape is Prometheus' business"
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert math.isfinite(sample.value)
    assert {f.name for f in families} == {f.name.removesuffix("_total") if f.type == "counter" else f.name for f in families}
    assert {s.name for f in families for s in f.samples} == {name for name, _ in scrape(client)}, "both tell the same"


OLD_NAMES = {
    "update_duration", "peers_per_srv", "pings_inf_share", "servers_num_total", "servers_num_relay", "ping_pct",
    "server_version", "n_blocks", "servers_num", "blocks_total", "blocks_online_min", "blocks", "rps_avg", "rps_min",
}  # fmt: skip
"""Those of health.petals.dev."""


def pinging(name: str, start: int, end: int, version: str = "2.3.0", **pings: float) -> Server:
    one = online(name, start, end)
    said = replace(
        one.record,
        next_pings={peer_id(peer): s for peer, s in pings.items()},
        version=version,
        inference_rps=5.0,
        using_relay=True,
    )
    visit = replace(one.visit, version=None) if one.visit else None
    return replace(one, record=said, visit=visit)


def test_the_old_series_are_there_under_their_old_names(client: Client) -> None:
    servers = (
        pinging("a", 0, 2, b=0.1, c=0.3),
        pinging("b", 0, 1, a=0.2, c=math.inf),
        announced("j", 1, 2, PeerState.JOINING),
        unreachable("u", 1, 2),
    )
    seed(model(2, *servers))
    seen = scrape(client, "/api/prometheus")
    assert {name for name, _ in seen} >= OLD_NAMES
    of = ("model", "tiny-hf")
    assert seen["update_duration", ()] == 2
    assert (seen["servers_num_total", ()], seen["servers_num_relay", ()]) == (2, 2)
    assert (seen["peers_per_srv", ()], seen["pings_inf_share", ()]) == (2, 0.25)
    percentiles = [seen["ping_pct", (("pct", pct),)] for pct in ("25", "50", "75", "90", "95")]
    assert percentiles == pytest.approx([0.15, 0.2, 0.25, 0.28, 0.29])
    assert (seen["n_blocks", (of,)], seen["servers_num", (of,)], seen["blocks_total", (of,)]) == (2, 4, 5)
    assert seen["blocks_online_min", (of,)] == 1
    held = [seen["blocks", (of, ("state", state))] for state in ("online", "joining", "offline", "unreachable")]
    assert held == [3, 1, 0, 1]
    assert seen["rps_avg", (of, ("rps", "inference"))] == 7.5 and seen["rps_min", (of, ("rps", "inference"))] == 5
    assert seen["server_version", (("version_number", "2.3.0"),)] == 2


def test_versions_are_a_closed_set_whatever_servers_call_themselves(client: Client) -> None:
    made = [pinging(f"s{n}", 0, 1, version=f"1.{n}") for n in range(30)] + [pinging("x", 0, 1, version='203.0.113.7"} 1\n')]
    seed(model(1, *sorted(made, key=lambda s: s.peer_id)))
    found = {dict(labels)["version_number"]: v for (name, labels), v in scrape(client).items() if name == "server_version"}
    assert len(found) == 11 and found["other"] == 21


def test_two_models_stay_below_two_thousand_series_and_fifty_servers_make_as_many_as_five_hundred(client: Client) -> None:
    def count(servers: int) -> int:
        made = sorted((pinging(f"s{n}", 0, 126, s1=0.1) for n in range(servers)), key=lambda s: (s.span, s.peer_id))
        seed(*(replace(model(126, *made), prefix=prefix) for prefix in ("one", "two")))
        return len(scrape(client))

    few = count(50)
    assert count(500) == few <= 2_000


def test_crawls_are_counted_as_a_histogram_that_only_grows(client: Client) -> None:
    seed(model(1, online("a", 0, 1)))
    publish(SWARM)
    seen = scrape(client)
    assert seen["swarm_crawl_duration_seconds_count", ()] == seen["swarm_crawls_total", (("outcome", "succeeded"),)] == 1
    assert seen["swarm_crawl_duration_seconds_bucket", (("le", "1.0"),)] == 0
    assert seen["swarm_crawl_duration_seconds_bucket", (("le", "+Inf"),)] == 1
    Crawl.objects.all().delete()
    publish(SWARM)
    assert scrape(client)["swarm_crawl_duration_seconds_count", ()] == 1


def test_the_fullest_block_says_how_much_cache_is_left(client: Client) -> None:
    def with_cache(name: str, start: int, end: int, tokens: int | None) -> Server:
        one = online(name, start, end)
        return replace(one, record=replace(one.record, cache_tokens_left=tokens))

    seed(model(2, with_cache("a", 0, 2, 400), with_cache("b", 0, 1, 60)))
    assert scrape(client)["swarm_model_min_cache_tokens", (("model", "tiny-hf"),)] == 100
    seed(model(2, with_cache("a", 0, 1, None), with_cache("b", 1, 2, 60)))
    assert ("swarm_model_min_cache_tokens", (("model", "tiny-hf"),)) not in scrape(client), "not said is not zero"


def test_without_redis_there_is_no_figure_of_waiting_tasks_and_everything_else(client: Client, settings) -> None:  # type: ignore[no-untyped-def]
    seed(model(1, online("a", 0, 1)))
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    names = {name for name, _ in scrape(client)}
    assert "swarm_tasks_waiting" not in names and "swarm_model_complete" in names


def test_waiting_tasks_are_counted_by_queue(client: Client, settings) -> None:  # type: ignore[no-untyped-def]
    with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
        broker.delete("default", "crawl")
        broker.rpush("default", "one", "two")
        seen = scrape(client)
        broker.delete("default")
    assert [seen["swarm_tasks_waiting", (("queue", queue),)] for queue in ("default", "crawl")] == [2, 0]


@pytest.mark.parametrize(
    ("asked", "after", "status"),
    [("", 89, 200), ("", 91, 503),
     ("?max_age=10", 9, 200), ("?max_age=10", 11, 503), ("?max_age=nan", 0, 400), ("?max_age=-1", 0, 400)],
)  # fmt: skip
def test_the_freshness_url_answers_503_past_its_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch, asked: str, after: float, status: int
) -> None:
    assert client.get("/fresh").status_code == 503, "never seen"
    seed(model(1, online("a", 0, 1)))
    monkeypatch.setattr(queries.time, "time", lambda: NOW + after)
    answer = client.get(f"/fresh{asked}")
    assert answer.status_code == status and answer["Cache-Control"] == "no-store"
    assert client.get("/fresh?swarm=nobody").status_code == 404


OPEN = {"Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2"}


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The swarm of each time that its series were made."""
    made: list[str] = []
    plain = exposition.SwarmCollector.collect

    def counted(self: exposition.SwarmCollector) -> Iterator[Metric]:
        made.append(self._seen.swarm)
        return plain(self)

    monkeypatch.setattr(exposition.SwarmCollector, "collect", counted)
    return made


def test_series_of_the_swarm_are_made_once_for_each_crawl_and_format(
    client: Client, rendered: list[str], django_assert_num_queries: Any
) -> None:
    seed(model(1, online("a", 0, 1)))
    first = client.get("/metrics").content
    with django_assert_num_queries(FEW):
        assert client.get("/metrics").content == client.get("/api/prometheus").content == first
    assert len(rendered) == 1
    other = client.get("/metrics", headers=OPEN)
    assert other["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert other.content == client.get("/metrics", headers=OPEN).content and other.content.count(b"# EOF\n") == 1
    assert len(rendered) == 2
    store(failure(NOW + 10))
    assert scrape(client)["swarm_crawl_ok", ()] == 0 and len(rendered) == 3
    assert client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=new"}).status_code == 200


FEW = 12
"""Of two scrapes: whether there was another crawl, what the staff has decided, and what counts without a crawl."""


def test_what_happens_between_two_crawls_is_told_at_once(client: Client, rendered: list[str], settings: Any) -> None:
    seed(model(1, online("a", 0, 1)))
    before = scrape(client)
    with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
        broker.rpush("crawl", "one")
        tally(SWARM, "tiny-hf", "done", datetime.fromtimestamp(NOW, UTC))
        publish(SWARM)
        after = scrape(client)
        broker.delete("crawl")
    assert len(rendered) == 1
    changed = {name: after[name, labels] for name, labels in after if before.get((name, labels)) != after[name, labels]}
    assert changed["swarm_tasks_waiting"] == before["swarm_tasks_waiting", (("queue", "crawl"),)] + 1
    assert changed["swarm_hint_decisions_total"] == changed["swarm_crawls_total"] == 1


def test_what_the_staff_decides_is_told_at_the_next_scrape(client: Client) -> None:
    seed(model(1, online("a", 0, 1), online("b", 0, 1)))
    assert scrape(client)["swarm_model_min_redundancy", (("model", "tiny-hf"),)] == 2
    at = datetime.fromtimestamp(NOW, UTC)
    Ruling.objects.create(
        kind=Kind.QUARANTINE,
        subject=peer_id("b"),
        words="wrong",
        starts_at=at,
        ends_at=at + timedelta(hours=1),
        made_by=person(),
        made_at=at,
    )
    assert scrape(client)["swarm_model_min_redundancy", (("model", "tiny-hf"),)] == 1
