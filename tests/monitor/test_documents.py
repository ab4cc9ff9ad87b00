"""The JSON that other programs rely on: ours, and health.petals.dev's shape to the letter."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from monitor import queries
from monitor.extensions import Extension, registered
from monitor.models import Crawl
from monitor.store import store
from swarm.snapshot import PeerState
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.monitor.seeding import BOOT, NOW, announced, failure, online, report, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _a_given_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)


def get(client: Client, path: str, status: int = 200) -> Any:
    response = client.get(path)
    assert response.status_code == status
    return json.loads(response.content, parse_constant=_not_json)


def _not_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


LEASE = {
    "id": "l1", "peer_id": peer_id("a"), "model": "tiny-hf", "from_model": "tiny-hf", "start": 3, "end": 5,
    "blocks": "blocks 3–4", "from": [0, 3],
    "from_blocks": "blocks 0–2", "phase": "offered", "symbol": "○", "progress": 0.0, "percent": 0, "urgency": "hole",
    "reason_code": "hole", "reason": "why", "plan_version": 1, "expected_gain": None, "cost_s": None, "outcome": "open",
    "created_at": "2026-09-21T14:13:20Z", "closed_at": None, "close_reason": "",
}  # fmt: skip

GOLDEN_RECORD = ServerRecord(
    ServerState.ONLINE,
    1040.823,
    Span(0, 16),
    public_name="🦆Mallard🌞",
    version="2.0.1.post2",
    network_rps=1185.5,
    forward_rps=9887.5,
    inference_rps=343.25,
    adapters=("timdettmers/guanaco-65b",),
    torch_dtype="bfloat16",
    quant_type="nf4",
    using_relay=False,
    cache_tokens_left=1_179_648,
    next_pings={peer_id("b"): 0.25, peer_id("c"): math.inf},
)


def test_the_state_has_the_shape_of_health_petals_dev(client: Client) -> None:
    duck = online("a", 0, 16)
    duck = replace(duck, record=GOLDEN_RECORD, visit=replace(duck.visit, version=None))  # type: ignore[type-var]
    other = online("b", 0, 4)
    pinging = replace(other.record, next_pings={peer_id("a"): 0.5})
    gone_dark = unreachable("c", 2, 16, detail="no answer within 5 s")
    servers = (replace(other, record=pinging), duck, gone_dark)
    seed(replace(model(16, *servers), repository="https://huggingface.co/Org/Tiny"))
    state = get(client, "/api/v1/state")
    assert list(state) == [
        "bootstrap_states", "top_contributors", "model_reports", "reachability_issues",
        "last_updated", "update_period", "update_duration",
    ]  # fmt: skip
    assert state["bootstrap_states"] == ["online"]
    assert state["top_contributors"] == {"🦆Mallard🌞": 16}
    assert state["reachability_issues"] == [{"peer_id": peer_id("c"), "err": "no answer within 5 s"}]
    assert (state["last_updated"], state["update_period"], state["update_duration"]) == (NOW, 30.0, 2.0)
    (told,) = state["model_reports"]
    rows = {row["peer_id"]: row for row in told.pop("server_rows")}
    assert told == {
        "name": "Org/Tiny", "short_name": "Tiny", "state": "healthy", "num_blocks": 16,
        "repository": "https://huggingface.co/Org/Tiny", "dht_prefix": "tiny-hf", "official": False, "limited": False,
    }  # fmt: skip
    assert {row["state"] for row in rows.values()} == {"online", "unreachable"}
    assert rows[peer_id("a")] == {
        "short_peer_id": "..." + peer_id("a")[-6:],
        "peer_id": peer_id("a"),
        "peer_ip_info": "unknown",
        "show_public_name": True,
        "state": "online",
        "span": {
            "peer_id": peer_id("a"),
            "start": 0,
            "end": 16,
            "server_info": {
                "state": "online",
                "throughput": 1040.823,
                "start_block": 0,
                "end_block": 16,
                "public_name": "🦆Mallard🌞",
                "version": "2.0.1.post2",
                "network_rps": 1185.5,
                "forward_rps": 9887.5,
                "inference_rps": 343.25,
                "adapters": ["timdettmers/guanaco-65b"],
                "torch_dtype": "bfloat16",
                "quant_type": "nf4",
                "using_relay": False,
                "cache_tokens_left": 1_179_648,
                "next_pings": {peer_id("b"): 0.25, peer_id("c"): None},
            },
        },
        "adapters": [{"name": "timdettmers/guanaco-65b", "short_name": "guanaco-65b"}],
        "pings_to_me": {peer_id("b"): 0.5},
        "cache_tokens_left_per_block": 36_864,
    }
    assert "cache_tokens_left_per_block" not in rows[peer_id("b")], "absent where it is not known"


def test_states_are_petals_words(client: Client) -> None:
    servers = (announced("j", 0, 2, PeerState.JOINING), announced("l", 0, 2, PeerState.LEAVING))
    seed(model(2, *servers))
    (told,) = get(client, "/api/v1/state")["model_reports"]
    assert told["state"] == "broken"
    assert {row["peer_id"]: row["state"] for row in told["server_rows"]} == {
        peer_id("j"): "joining",
        peer_id("l"): "offline",
    }


def test_a_dead_bootstrap_peer_is_an_issue(client: Client) -> None:
    store(failure(NOW))
    state = get(client, "/api/v1/state")
    assert state["bootstrap_states"] == ["unreachable"] and state["model_reports"] == []
    assert [issue["peer_id"] for issue in state["reachability_issues"]] == [BOOT]
    assert state["last_updated"] is None


def test_one_model_says_what_is_missing_and_who_serves_what(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "monitor.documents.registered",
        lambda: (Extension("leases", "", lambda swarm, prefixes: {key: [LEASE] for key in prefixes}),),
    )
    seed(model(6, online("a", 0, 3, 20.0), online("b", 1, 3, None), unread=frozenset({5})))
    document = get(client, "/api/v1/models/tiny-hf")
    servers = document.pop("servers")
    assert document == {
        "canary": None,
        "swarm": "main",
        "prefix": "tiny-hf",
        "repository": None,
        "num_blocks": 6,
        "size_known": True,
        "conflict": None,
        "verdict": "broken",
        "sentence": "cannot run: blocks 3–4 have no server",
        "since": "2026-09-21T14:13:20Z",
        "holes": [[3, 5]],
        "thin": [[0, 1]],
        "unread": [[5, 6]],
        "one_operator": [],
        "route": {"exists": False, "servers": [], "words": "blocks 3–5 have no server with room for another session"},
        "when_last_seen": None,
        "min_redundancy": 0,
        "bottleneck": {"block": 0, "throughput_tokens_per_second": 20.0, "reported_tokens_per_second": 20.0},
        "blocks": [1, 2, 2, 0, 0, None],
        "leases": [LEASE],
        "observed_at": "2026-09-21T14:13:20Z",
        "snapshot_id": Crawl.objects.get().pk,
        "stale": False,
        "held": None,
        "expected_interval_s": 30.0,
    }
    assert servers[0] == {
        "peer_id": peer_id("a"),
        "public_name": "a",
        "state": "online",
        "state_since": "2026-09-21T14:13:20Z",
        "state_when_last_seen": None,
        "last_seen": "2026-09-21T14:13:20Z",
        "start": 0,
        "end": 3,
        "throughput_tokens_per_second": 20.0,
        "believed_tokens_per_second": 20.0,
        "belief": {"basis": "reported", "reason": "as reported"},
        "measured_tokens_per_second": None,
        "clients": None,
        "cache_tokens_left": None,
        "version": "2.3.0",
        "using_relay": None,
        "conflict": None,
        "quarantined": None,
        "answers": None,
        "clock_skew_s": None,
        "reachability": {
            "outcome": "answered",
            "detail": "",
            "asked_at": "2026-09-21T14:13:20Z",
            "asked_for": None,
            "addresses_tried": [],
            "via": None,
        },
    }
    assert servers[1]["throughput_tokens_per_second"] is None


def test_a_servers_own_answer_beats_its_record(client: Client) -> None:
    one = online("a", 0, 1)
    visit = replace(one.visit, version="2.4", cache_tokens_left=0)  # type: ignore[type-var]
    seed(model(1, replace(one, record=replace(GOLDEN_RECORD, span=Span(0, 1)), visit=visit)))
    (told,) = get(client, "/api/v1/models/tiny-hf")["servers"]
    assert (told["version"], told["cache_tokens_left"], told["state"]) == ("2.4", 0, "full")


def test_servers_that_left_are_listed_beside_those_that_serve(client: Client) -> None:
    seed(model(2, online("a", 0, 2), online("b", 0, 2)), at=NOW - 30)
    seed(model(2, online("a", 0, 2)))
    servers = get(client, "/api/v1/models/tiny-hf")["servers"]
    assert [(told["peer_id"], told["state"]) for told in servers] == [(peer_id("a"), "online"), (peer_id("b"), "gone")]


def test_models_come_worst_first_with_the_crawl_that_saw_them(client: Client) -> None:
    whole = model(1, online("a", 0, 1), online("b", 0, 1))
    seed(*(replace(given, prefix=prefix) for given, prefix in ((whole, "a-whole"), (model(1), "z-broken"))))
    document = get(client, "/api/v1/models")
    assert [item["prefix"] for item in document["items"]] == ["z-broken", "a-whole"]
    assert (document["stale"], document["expected_interval_s"]) == (False, 30.0)
    assert document["last_crawl"]["succeeded"] is True and document["last_crawl"]["bootstraps_up"] == 1


def test_a_stale_model_is_unknown_with_what_it_was(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(2, online("a", 0, 1)))
    store(failure(NOW + 30))
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 600)
    document = get(client, "/api/v1/models/tiny-hf")
    assert (document["verdict"], document["stale"], document["min_redundancy"]) == ("unknown", True, None)
    assert document["sentence"] == "unknown — could not run: block 1 had no server 10 min ago"
    everything = get(client, "/api/v1/models")
    assert everything["stale"] is True and everything["last_crawl"]["reason"] == "p2pd does not answer"
    (told,) = get(client, "/api/v1/state")["model_reports"]
    assert told["state"] == "unknown" and {row["state"] for row in told["server_rows"]} == {"unknown"}


def test_nothing_in_the_json_of_a_stale_swarm_speaks_in_the_present(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule for all of it: what is now is not known, and what was stands apart."""
    seed(model(4, online("a", 0, 2), unreachable("u", 2, 4)))
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 5_000)
    document = get(client, "/api/v1/models/tiny-hf")
    assert (document["holes"], document["thin"], document["unread"]) == ([], [], [[0, 4]])
    assert (document["blocks"], document["bottleneck"], document["min_redundancy"]) == ([None] * 4, None, None)
    assert document["route"] == {"exists": None, "servers": [], "words": "not known: the swarm is not seen now"}
    was = document["when_last_seen"]
    assert (was["verdict"], was["holes"], was["thin"], was["blocks"]) == ("broken", [[2, 4]], [[0, 2]], [1, 1, 0, 0])
    assert was["bottleneck"] == {"block": 0, "throughput_tokens_per_second": 10.0, "reported_tokens_per_second": 10.0}
    assert was["min_redundancy"] == 0
    for servers in (document["servers"], get(client, "/api/v1/servers")["items"]):
        assert [(s["state"], s["state_since"]) for s in servers] == [("not checked", None)] * 2
        assert {s["state_when_last_seen"] for s in servers} == {"online", "unreachable"}
        assert {s["believed_tokens_per_second"] for s in servers} == {None}
    blocks = get(client, "/api/v1/models/tiny-hf/blocks")["items"]
    assert {(b["state"], b["redundancy"], len(b["online"])) for b in blocks} == {("unknown", None, 0)}
    assert [(gap["state"], gap["blocks"]) for gap in get(client, "/api/v1/gaps")["items"]] == [("unknown", "blocks 0–3")]
    state = get(client, "/api/v1/state")
    assert (state["reachability_issues"], state["bootstrap_states"], state["top_contributors"]) == ([], ["unknown"], {})


def test_an_unknown_prefix_is_a_problem_document(client: Client) -> None:
    seed(model(1))
    response = client.get("/api/v1/models/nothing")
    assert response.status_code == 404 and response.headers["Content-Type"].startswith("application/problem+json")
    assert response.json()["status"] == 404


def test_before_any_check_lists_are_empty_and_times_null(client: Client) -> None:
    document = get(client, "/api/v1/models")
    assert (document["items"], document["observed_at"], document["stale"], document["last_crawl"]) == ([], None, True, None)
    assert get(client, "/api/v1/state")["last_updated"] is None


def test_no_address_of_anybody_is_published(client: Client) -> None:
    dark = unreachable("a", 0, 1, detail="failed to dial: /ip4/203.0.113.7/tcp/31330: connection refused")
    store(report(NOW, model(1, dark)))
    for path in ("/api/v1/state", "/api/v1/models", "/m/tiny-hf", "/metrics"):
        assert b"203.0.113.7" not in client.get(path).content
    assert registered() is not None
