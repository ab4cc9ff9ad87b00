"""What the monitor found out beyond coverage stands on the page, in the JSON and in the metrics alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries
from monitor.store import store
from swarm.snapshot import AddressState, Dropped, Outcome, PeerState, Server, Snapshot
from swarm.wire.spans import Span
from tests.monitor.seeding import BOOT, NOW, SWARM, announced, online, report, seed, unreachable, visited
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, NOW + 12)


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: now)


def page(client: Client, path: str = "/m/tiny-hf") -> str:
    return client.get(path).content.decode()


def told(client: Client, path: str = "/api/v1/models/tiny-hf"):  # type: ignore[no-untyped-def]
    return client.get(path).json()


def asked(server: Server, **changes: object) -> Server:
    assert server.visit is not None
    return replace(server, visit=replace(server.visit, **changes))  # type: ignore[arg-type]


def test_everything_that_was_found_out_comes_back_from_the_database() -> None:
    dark = asked(unreachable("d", 2, 4), addresses=("/ip4/…/tcp/31330",), via="direct", span=Span(2, 4))
    odd = replace(asked(online("a", 0, 4), via="relay", span=Span(0, 4)), conflict="its record says leaving", skew_s=-42.5)
    snapshot = Snapshot(SWARM, NOW, (replace(model(4, odd, dark), conflict="the index says 5 blocks"),))
    address = AddressState("/ip4/10.0.0.1/tcp/1/p2p/x", BOOT, "IPv4", "tcp", "Connection refused")
    store(replace(report(NOW), snapshot=snapshot, addresses=(address,), split="two swarms"))
    seen = queries.watch(SWARM)
    assert seen.published is not None and seen.published.snapshot == snapshot
    assert seen.last_crawl is not None and seen.last_crawl.addresses == (address,) and seen.last_crawl.split == "two swarms"


def test_a_server_whose_record_is_contradicted_counts_and_says_so(client: Client) -> None:
    seed(model(1, replace(online("a", 0, 1), conflict="its record says leaving, but it answers for block 0")))
    assert "conflict: its record says leaving, but it answers for block 0" in page(client)
    (server,) = told(client)["servers"]
    assert server["state"] == "online" and server["conflict"].startswith("its record says leaving")
    assert 'swarm_conflicts{model="tiny-hf"} 1.0' in page(client, "/metrics")


def test_a_contradicted_model_says_so(client: Client) -> None:
    seed(replace(model(1, online("a", 0, 1)), conflict="the index of models also says 31 blocks; 32 stands"))
    assert "Conflict: the index of models also says 31 blocks; 32 stands." in page(client)
    assert told(client)["conflict"] == "the index of models also says 31 blocks; 32 stands"


def test_a_server_without_cache_left_is_full_holds_its_blocks_and_is_no_way_for_a_client(client: Client) -> None:
    full = asked(online("a", 0, 4), cache_tokens_left=7)
    seed(model(4, full))
    html = page(client)
    assert "◉</span> full" in html and "has no cache left for another session" in html
    assert "runs, but" in html, "its blocks are served"
    assert "A client finds no way now: blocks 0–3 have no server with room for another session." in html
    document = told(client)
    assert (document["servers"][0]["state"], document["route"]["exists"], document["verdict"]) == ("full", False, "thin")
    metrics = page(client, "/metrics")
    assert 'swarm_model_routable{model="tiny-hf"} 0.0' in metrics and 'swarm_model_complete{model="tiny-hf"} 1.0' in metrics
    assert 'swarm_servers{model="tiny-hf",state="full"} 1.0' in metrics
    assert client.get("/api/v1/state").json()["model_reports"][0]["server_rows"][0]["state"] == "online", "a word Petals knows"
    seed(model(4, asked(online("a", 0, 4), cache_tokens_left=8)), at=NOW + 1)
    assert told(client)["servers"][0]["state"] == "online", "room for one token"


def test_the_way_of_a_client_passes_as_few_servers_as_it_can(client: Client) -> None:
    servers = (online("a", 0, 2), online("b", 0, 3), online("c", 1, 5), online("d", 3, 6), unreachable("e", 0, 6))
    seed(model(6, *servers))
    assert "A client finds a way through 2 servers." in page(client)
    assert told(client)["route"]["servers"] == [peer_id("b"), peer_id("d")]


def test_how_a_server_was_tried_is_shown_without_its_host(client: Client) -> None:
    tried = ("/ip4/203.0.113.7/tcp/31330", "/ip6/2001:db8::7/tcp/31330")
    dark = asked(unreachable("a", 0, 1), outcome=Outcome.REFUSED, addresses=tried, via="direct", span=Span(0, 1))
    seed(model(1, dark))
    html = page(client)
    assert "(tried: /ip4/…/tcp/31330, /ip6/…/tcp/31330)" in html and "203.0.113.7" not in html and "2001:db8" not in html
    reachability = told(client)["servers"][0]["reachability"]
    assert reachability["outcome"] == "refused" and reachability["via"] == "direct" and reachability["asked_for"] == [0, 1]
    assert reachability["addresses_tried"] == ["/ip4/…/tcp/31330", "/ip6/…/tcp/31330"]


def test_a_server_that_loads_for_long_is_shown_with_how_long(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    joining = announced("j", 0, 2, PeerState.JOINING)
    seed(model(2, joining))
    seed(model(2, joining), at=NOW + 600)
    at(monkeypatch, NOW + 600)
    assert "loading its blocks for 10 min</span>" in page(client)
    seed(model(2, joining), at=NOW + 1_260)
    at(monkeypatch, NOW + 1_260)
    assert "for 21 min, longer than any model should take: it may be stuck" in page(client)


def test_of_a_server_that_is_said_to_load_the_page_says_that_nobody_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(monkeypatch, NOW)
    seed(model(2, visited(announced("j", 0, 2, PeerState.JOINING), Outcome.TIMEOUT)))
    assert "loading its blocks, but it did not answer in time; hints do not count on it</span>" in page(client)
    at(monkeypatch, NOW + 30)
    seed(model(2, visited(announced("j", 0, 2, PeerState.JOINING), Outcome.PROTOCOL_ABSENT)), at=NOW + 30)
    assert "loading its blocks for 30 s</span>" in page(client)


@pytest.mark.parametrize(("skew", "words"), [(90.0, "1 min ahead of ours"), (-42.0, "42 s behind ours")])
def test_a_clock_that_runs_wrong_is_shown_as_that(client: Client, skew: float, words: str) -> None:
    seed(model(1, replace(online("a", 0, 1), skew_s=skew)))
    assert f"its clock seems to be {words}" in page(client)
    assert told(client)["servers"][0]["clock_skew_s"] == skew


def test_a_prefix_that_nobody_announces_gets_the_nearest_one(client: Client) -> None:
    seed(model(1, online("a", 0, 1)))
    html = client.get("/m/Tiny").content.decode()
    assert 'The swarm announces another prefix: did you mean <a href="/m/tiny-hf">tiny-hf</a>?' in html
    assert "did you mean" not in client.get("/m/bloom-7b1").content.decode()


def test_bootstrap_addresses_that_fail_a_split_and_a_slow_crawl_are_told(client: Client) -> None:
    states = (
        AddressState("/ip4/203.0.113.5/tcp/1/p2p/x", BOOT, "IPv4", "ok"),
        AddressState("/ip6/2001:db8::5/tcp/1/p2p/x", BOOT, "IPv6", "tcp", "Network is unreachable"),
    )
    split = "the bootstrap peers belong to 2 separate swarms: …aaaaaa | …bbbbbb"
    store(replace(report(NOW, model(1, online("a", 0, 1))), addresses=states, split=split, finished_at=NOW + 44))
    html = page(client)
    assert f"1 of 2 bootstrap addresses do not answer (…{BOOT[-6:]} over IPv6 tcp/1: Network is unreachable)." in html
    assert f"The swarm is split: {split}. We show what we reach." in html
    assert "The last check took 45 s, longer than the 30 s between two checks." in html
    rows = page(client, "/")
    rows = rows[rows.index('id="entrances"') :]
    assert "Bootstrap peers, by address (2)" in rows and rows.count("tcp/1") == 2
    assert rows.index("IPv4 tcp/1") < rows.index("answers a DHT query") < rows.index("IPv6 tcp/1") < rows.index("unreachable")
    last = told(client, "/api/v1/models")["last_crawl"]
    assert [item["endpoint"] for item in last["bootstrap_addresses"]] == ["tcp/1", "tcp/1"]
    assert last["overran"] is True and last["split"] == split
    assert [item["step"] for item in last["bootstrap_addresses"]] == ["ok", "tcp"]
    metrics = page(client, "/metrics")
    assert "swarm_crawl_overran 1.0" in metrics and "swarm_split 1.0" in metrics
    assert 'swarm_bootstrap_addresses{family="IPv6",step="tcp"} 1.0' in metrics
    assert "203.0.113.5" not in html + str(last) + metrics


def test_an_entry_of_the_index_that_was_left_out_explains_a_blank_page(client: Client) -> None:
    seed(dropped=(Dropped("_petals.models", "'big-hf'", "model-size", "num_blocks is 20000, not a number from 1 to 2048"),))
    assert "a number of blocks that no model has" in page(client, "/") and "num_blocks is 20000" in page(client, "/")
