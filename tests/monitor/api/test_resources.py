"""What each read says of a swarm that has something of everything (`conftest`)."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from monitor.models import SNAPSHOTS_KEPT_FOR, Crawl, KeptSnapshot
from monitor.store import store
from tests.monitor.api.conftest import failure, snapshot_id, whole
from tests.monitor.seeding import BOOT, NOW, online, report, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.usefixtures("site")


def get(client: Client, path: str) -> Any:
    response = client.get(f"/api/v1/{path}")
    assert response.status_code == 200, response.content
    return response.json()


def test_each_block_says_who_holds_it_and_since_when_nobody_does(client: Client) -> None:
    told = get(client, "models/broken-hf/blocks")
    assert (told["prefix"], told["num_blocks"], len(told["items"])) == ("broken-hf", 8, 8)
    first, lonely, empty, unread = (told["items"][index] for index in (0, 2, 3, 7))
    assert (first["state"], first["redundancy"], first["online"]) == ("served", 2, sorted([peer_id("a"), peer_id("c")]))
    assert first["throughput_tokens_per_second"] == 18.0 and first["since"] is None
    assert (lonely["state"], lonely["redundancy"]) == ("one-server", 1)
    assert (empty["state"], empty["redundancy"], empty["online"]) == ("no-server", 0, [])
    assert empty["since"] == {"after": "2026-09-21T14:11:50Z", "before": "2026-09-21T14:12:20Z"}
    assert (unread["state"], unread["redundancy"], unread["since"]) == ("unknown", None, None)


def test_gaps_come_worst_first_with_who_left(client: Client) -> None:
    told = get(client, "gaps")
    assert [(gap["prefix"], gap["state"], gap["start"], gap["end"]) for gap in told["items"]] == [
        ("broken-hf", "no-server", 3, 7), ("broken-hf", "unknown", 7, 8), ("broken-hf", "one-server", 2, 3),
    ]  # fmt: skip
    hole = told["items"][0]
    assert hole["blocks"] == "blocks 3–6" and hole["online"] == []
    assert hole["left"] == [{"peer_id": peer_id("a"), "how": "moved to other blocks"}]
    assert get(client, f"incidents/{hole['incident_id']}")["kind"] == "hole"
    assert hole["since"] == {"after": None, "before": "2026-09-21T14:11:50Z"}, "block 6 had no server when we first looked"
    assert get(client, "gaps?prefix=tiny-hf")["items"] == []


def test_servers_are_found_by_model_state_and_id(client: Client) -> None:
    every = get(client, "servers")["items"]
    assert len(every) == len({(one["peer_id"], one["prefix"]) for one in every}) == 7
    assert {one["peer_id"] for one in get(client, "servers?state=joining")["items"]} == {peer_id("j")}
    assert {one["prefix"] for one in get(client, "servers?prefix=tiny-hf")["items"]} == {"tiny-hf"}
    one = get(client, f"servers/{peer_id('a')}")
    assert [(part["prefix"], part["start"], part["end"]) for part in one["serves"]] == [("broken-hf", 0, 2), ("tiny-hf", 0, 4)]
    dark = get(client, f"servers/{peer_id('dark')}")["serves"][0]
    assert dark["state"] == "unreachable" and dark["reachability"]["outcome"] == "timeout"


def test_a_server_that_left_is_still_known_for_a_while(client: Client) -> None:
    seed(model(4, online("b", 0, 4, at=NOW + 10)), at=NOW + 10)
    assert get(client, f"servers/{peer_id('a')}")["serves"][-1]["state"] == "gone"


def test_bootstrap_peers_by_kind_of_address(client: Client) -> None:
    told = get(client, "bootstraps")
    assert told["items"] == [
        {
            "peer_id": BOOT,
            "up": True,
            "addresses": [
                {"family": "ip4", "step": "ok", "detail": None},
                {"family": "ip6", "step": "tcp", "detail": "connection refused"},
            ],
        }
    ]


def test_crawls_say_what_came_of_them(client: Client) -> None:
    store(failure(NOW + 5))
    newest, before, *_ = get(client, "crawls")["items"]
    assert (newest["outcome"], newest["reason"], newest["observed_at"]) == ("failed", "p2pd does not answer", None)
    assert (before["outcome"], before["id"], before["duration_seconds"]) == ("succeeded", snapshot_id(), 2.0)
    assert [one["outcome"] for one in get(client, "crawls?outcome=failed")["items"]] == ["failed"]
    record = get(client, f"crawls/{before['id']}")["dropped_records"][0]
    assert before["dropped"] == {"subkey": 1} and record["reason"] == "subkey" and "203.0.113" not in json.dumps(record)


def test_a_snapshot_stays_what_it_was(client: Client) -> None:
    path = f"snapshots/{snapshot_id()}"
    before = get(client, path)
    assert (before["observed_at"], before["snapshot_id"]) == ("2026-09-21T14:13:20Z", snapshot_id())
    shown = next(told for told in before["models"] if told["prefix"] == "broken-hf")
    assert (shown["verdict"], shown["holes"], shown["unread"], shown["blocks"]) == (
        "broken",
        [[3, 7]],
        [[7, 8]],
        [2, 2, 1, 0, 0, 0, 0, None],
    )
    seed(model(1), at=NOW + 10)
    assert get(client, path) == before
    names = {server.record.public_name for server in whole().servers}
    assert not any(name and f'"{name}"' in json.dumps(before) for name in names), "a name may be taken back"


def test_a_snapshot_says_whether_the_size_is_known_and_not_where_that_was_not_kept(client: Client) -> None:
    seen = model(4, online("a", 0, 4, at=NOW + 10))
    seed(replace(seen, at_least=True), replace(seen, prefix="named-hf"), at=NOW + 10)
    path = f"snapshots/{snapshot_id()}"
    told = {one["prefix"]: one["size_known"] for one in get(client, path)["models"]}
    assert told == {"tiny-hf": False, "named-hf": True}
    kept = KeptSnapshot.objects.get(pk=snapshot_id())
    document = json.loads(zlib.decompress(kept.document))
    for one in document["models"]:
        del one["size_known"]
    kept.document = zlib.compress(json.dumps(document, separators=(",", ":")).encode())
    kept.save()
    assert {one["size_known"] for one in get(client, path)["models"]} == {None}


def test_an_old_snapshot_is_gone_and_says_what_is_left(client: Client) -> None:
    old = snapshot_id()
    store(report(NOW + SNAPSHOTS_KEPT_FOR.total_seconds() + 10, whole()))
    response = client.get(f"/api/v1/snapshots/{old}")
    assert response.status_code == 410 and response.json()["type"] == "/docs/errors/snapshot-forgotten"
    assert client.get(f"/api/v1/crawls/{old}").status_code == 200
    assert KeptSnapshot.objects.count() == 1


def test_a_crawl_that_left_no_snapshot_has_none(client: Client) -> None:
    store(failure(NOW + 5))
    failed = Crawl.objects.order_by("-pk").first()
    assert failed is not None and client.get(f"/api/v1/snapshots/{failed.pk}").status_code == 404


def test_what_is_needed_most_comes_first_with_what_a_server_should_take(client: Client) -> None:
    told = get(client, "needed?num_blocks=3")
    assert [item["prefix"] for item in told["items"]] == ["broken-hf", "tiny-hf"]
    card = told["items"][0]["cards"][0]
    assert card["reason_code"] == "hole" and (card["start"], card["end"]) not in ((3, 6),), "blocks 3–5 are promised"
    assert "no server" in card["reason"] and card["effect"]


def test_every_swarm_has_the_same_reads(client: Client, settings: Any) -> None:
    other = {"name": "other", "label": "Other", "initial_peers": [], "relay": False, "models": []}
    settings.SEPAL_SWARMS = [*settings.SEPAL_SWARMS, other]
    store(replace(report(NOW, replace(model(2, online("z", 0, 2)), prefix="there-hf"), swarm="other")))
    assert [item["prefix"] for item in get(client, "models?swarm=other")["items"]] == ["there-hf"]
    for path in (
        "gaps",
        "servers",
        "crawls",
        "bootstraps",
        "needed",
        "incidents",
        "models/there-hf/blocks",
        "models/there-hf/history",
    ):
        assert get(client, f"{path}?swarm=other")["stale"] is False
    assert get(client, "servers?swarm=other")["items"][0]["swarm"] == "other"
    assert client.get("/api/v1/models/there-hf").status_code == 404
    assert [(one["name"], one["page"], one["servers"]) for one in get(client, "swarms")["items"]] == [
        ("main", "/", 6), ("other", "/s/other/", 1),
    ]  # fmt: skip
    assert client.get("/api/v2/status.json?swarm=other").json()["page"]["name"] == "Other"
