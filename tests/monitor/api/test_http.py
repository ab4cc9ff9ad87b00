"""What holds for every answer under /api/: rules H2 to H5, H9 and H11 of the interface."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from monitor.api.problems import CATALOGUE
from monitor.limits import Limit
from monitor.store import store
from tests.monitor.api.conftest import reads, snapshot_id
from tests.monitor.seeding import NOW, failure, seed
from tests.swarms import model, peer_id

OF_NO_SNAPSHOT = ("openapi.json", "/crawls/", "/snapshots/", "/swarms", "/hints", "/state", "/api/v2/")
"""These are not about the present of one swarm, or have a shape that is not ours."""


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def problem(response: Any, status: int, slug: str) -> Any:
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    document = response.json()
    assert {"type", "title", "status", "detail"} <= set(document) and document["status"] == status
    assert document["type"] == f"/docs/errors/{slug}"
    assert "Traceback" not in response.content.decode()
    return document


def test_every_read_has_a_tag_a_date_a_rule_and_is_open_to_pages(client: Client, site: None) -> None:
    for path in reads():
        response = client.get(path)
        assert response.status_code == 200, (path, response.content)
        json.loads(response.content, parse_constant=refuse)
        assert response["ETag"].startswith('"') and response["Last-Modified"].endswith("GMT"), path
        assert response["Cache-Control"].startswith("public"), path
        assert "Accept" in response["Vary"] and response["Access-Control-Allow-Origin"] == "*"
        assert {"ETag", "Link", "Retry-After"} <= set(response["Access-Control-Expose-Headers"].replace(",", "").split())
        assert "Access-Control-Allow-Credentials" not in response


def test_the_same_again_is_a_304_without_a_body(client: Client, site: None) -> None:
    for path in reads():
        tag = client.get(path)["ETag"]
        for asked in (tag, f'W/{tag}, "other"', "*"):
            again = client.get(path, headers={"If-None-Match": asked})
            assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag), path
            assert "Content-Type" not in again and again["Cache-Control"]
        assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_tag_names_the_snapshot_and_whether_it_is_believed(client: Client, site: None, clock: list[float]) -> None:
    fresh = client.get("/api/v1/models")["ETag"]
    assert fresh.startswith(f'"{snapshot_id()}f-')
    clock[0] = NOW + 100
    old = client.get("/api/v1/models", headers={"If-None-Match": fresh})
    assert old.status_code == 200 and old["ETag"].startswith(f'"{snapshot_id()}s-') and old.json()["stale"] is True
    seed(model(1), at=NOW + 99)
    assert client.get("/api/v1/models")["ETag"].startswith(f'"{snapshot_id()}f-')


def test_two_documents_of_one_snapshot_have_two_tags(client: Client, site: None) -> None:
    tags = [client.get(path)["ETag"] for path in reads()]
    assert len(set(tags)) == len(tags)


def test_rules_of_caching(client: Client, site: None) -> None:
    live = "public, max-age=5, stale-while-revalidate=30, stale-if-error=300"
    assert {client.get(f"/api/v1/{path}")["Cache-Control"] for path in ("models", "gaps", "state", "servers", "swarms")} == {
        live
    }
    immutable = client.get(f"/api/v1/snapshots/{snapshot_id()}")["Cache-Control"]
    assert {"immutable", "max-age=31536000"} <= set(immutable.replace(",", "").split())
    assert client.post("/api/v1/hint/nonce")["Cache-Control"] == "no-store"


def objects(found: Any) -> list[dict[str, Any]]:
    items = found.get("items", [])
    return [found, *(item for item in items if "stale" in item)]


def test_every_object_says_how_far_it_may_be_believed(client: Client, site: None) -> None:
    for path in reads():
        if any(part in path for part in OF_NO_SNAPSHOT):
            continue
        for told in objects(client.get(path).json()):
            assert told["snapshot_id"] == snapshot_id() and told["stale"] is False and told["expected_interval_s"] == 30.0, path
            assert told["observed_at"].endswith("Z") and datetime.fromisoformat(told["observed_at"]).timestamp() == NOW
    for told in client.get("/api/v1/swarms").json()["items"]:
        assert told["snapshot_id"] == snapshot_id() and told["stale"] is False


def test_stale_after_three_missed_checks(client: Client, site: None, clock: list[float]) -> None:
    for later, stale in ((89, False), (91, True)):
        clock[0] = NOW + later
        for path in ("models", "models/tiny-hf", "gaps", "servers", "models/broken-hf/blocks", "bootstraps", "incidents"):
            assert client.get(f"/api/v1/{path}").json()["stale"] is stale, path


def test_before_the_first_check_there_is_nothing_and_no_zero(client: Client, db: None) -> None:
    for path in ("models", "gaps", "servers", "bootstraps", "crawls", "incidents"):
        told = client.get(f"/api/v1/{path}").json()
        assert (told["items"], told["observed_at"], told["snapshot_id"], told["stale"]) == ([], None, None, True)


def test_a_head_is_a_get_without_its_body(client: Client, site: None) -> None:
    for path in reads():
        whole, head = client.get(path), client.head(path)
        assert (head.status_code, head.content, head["ETag"]) == (200, b"", whole["ETag"])
        assert int(head["Content-Length"]) == len(whole.content)


@pytest.mark.parametrize(("path", "takes"), [("/api/v1/models", "GET, HEAD, OPTIONS"), ("/api/v1/hint", "OPTIONS, POST")])
def test_a_preflight_allows_reads_and_no_writes(client: Client, path: str, takes: str) -> None:
    response = client.options(path, headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"})
    assert response.status_code == 204 and response["Access-Control-Allow-Origin"] == "*"
    assert response["Access-Control-Allow-Methods"] == "GET, HEAD, OPTIONS" and response["Allow"] == takes
    problem(client.options("/api/v1/nothing"), 404, "no-such-address")


def test_a_write_is_open_to_no_page(client: Client, db: None) -> None:
    response = client.post("/api/v1/hint/nonce", headers={"Origin": "https://a.example"})
    assert response.status_code == 200 and "Access-Control-Allow-Origin" not in response


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/api/nothing", "/api/", "/api/v3/models", "/api/v1/models/"])
def test_no_such_address(client: Client, db: None, path: str) -> None:
    problem(client.get(path), 404, "no-such-address")


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("models/nothing", "unknown-model"),
        ("models/nothing/blocks", "unknown-model"),
        ("models/nothing/history", "unknown-model"),
        ("gaps?prefix=nothing", "unknown-model"),
        ("needed?model=nothing", "unknown-model"),
        ("models?swarm=nobody", "unknown-swarm"),
        ("needed?swarm=nobody", "unknown-swarm"),
        (f"servers/{peer_id('nobody')}", "unknown-server"),
        (f"peers/{peer_id('nobody')}/uptime", "unknown-server"),
        (f"what-if?model=tiny-hf&leaves={peer_id('nobody')}", "unknown-server"),
        ("incidents/999999", "unknown-incident"),
        ("crawls/999999", "unknown-crawl"),
        ("snapshots/999999", "unknown-snapshot"),
        ("hints/8c1b7a52-3c70-4d0a-9be6-0f2b61a0b4a1", "unknown-hint"),
    ],
)
def test_what_is_not_known_says_what_and_where_to_look(client: Client, site: None, path: str, slug: str) -> None:
    assert problem(client.get(f"/api/v1/{path}"), 404, slug)["detail"]


def test_a_method_that_is_not_taken_says_which_are(client: Client, db: None) -> None:
    response = client.delete("/api/v1/models")
    problem(response, 405, "method-not-allowed")
    assert {method.strip() for method in response["Allow"].split(",")} == {"GET", "HEAD", "OPTIONS"}
    assert {method.strip() for method in client.get("/api/v1/hint")["Allow"].split(",")} == {"POST", "OPTIONS"}


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=many", "state=sleeping"])
def test_a_bad_parameter_says_which(client: Client, site: None, query: str) -> None:
    document = problem(client.get(f"/api/v1/servers?{query}"), 422, "invalid-request")
    assert query.split("=")[0] in document["detail"]


@pytest.mark.parametrize("cursor", ["!!", "bnVsbA", "é", "W1wiYVwiXQ", "WyJhIl0", "MTA"])
def test_a_cursor_that_nobody_gave_out_leads_nowhere(client: Client, site: None, cursor: str) -> None:
    problem(client.get("/api/v1/servers", {"cursor": cursor}), 404, "unknown-page")
    if cursor != "MTA":
        problem(client.get("/api/v1/incidents", {"cursor": cursor}), 404, "unknown-page")
    problem(client.get("/api/v1/hints", {"cursor": cursor}), 404, "unknown-page")


def test_whoever_reads_too_often_is_told_to_wait(client: Client, site: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.api.middleware.READS_OF_AN_ADDRESS", Limit("read", 2))
    assert [client.get("/api/v1/gaps").status_code for _ in range(2)] == [200, 200]
    response = client.get("/api/v1/gaps")
    problem(response, 429, "too-many-requests")
    assert 1 <= int(response["Retry-After"]) <= 60
    assert client.get("/api/v1/gaps", REMOTE_ADDR="198.51.100.9").status_code == 200


def test_what_breaks_here_is_our_fault_and_shows_nothing(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("monitor.api.swarms.freshness", fail)
    client = Client(raise_request_exception=False)
    response = client.get("/api/v1/bootstraps")
    assert "secret" not in problem(response, 500, "broken")["detail"]


def test_a_fault_outside_the_doors_is_a_problem_too(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("corsheaders.middleware.CorsMiddleware.check_preflight", fail)
    response = Client(raise_request_exception=False).get("/api/v1/models")
    assert "secret" not in problem(response, 500, "broken")["detail"]


def test_a_blind_monitor_advises_nobody_and_says_when_to_come_back(client: Client, db: None) -> None:
    store(failure(NOW))
    response = client.get("/api/v1/needed")
    problem(response, 503, "not-seen")
    assert int(response["Retry-After"]) > 0


@pytest.mark.django_db
def test_each_kind_of_problem_has_a_page(client: Client) -> None:
    listed = client.get("/docs/errors").content.decode()
    for kind in CATALOGUE:
        assert client.get(kind.url).status_code == 200 and kind.url in listed
        assert kind.title in client.get(kind.url).content.decode().replace("&#x27;", "'")
    assert len({kind.slug for kind in CATALOGUE}) == len(CATALOGUE)
    assert client.get("/docs/errors/nothing").status_code == 404


def test_no_address_of_anybody_is_in_any_read(client: Client, site: None) -> None:
    for path in reads():
        body = client.get(path).content
        assert b"203.0.113." not in body and b"2001:db8" not in body, path
