"""The page about the API: its examples run, it names only what is there, it holds every operation and every error."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from coordinator.api import api
from coordinator.docs import jobs, reference
from monitor.api.problems import CATALOGUE
from tests.coordinator.seeding import seen
from tests.coordinator.test_hints import HOLED


def page_of(client: Client, path: str = "/docs/api") -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    text: str = answer.content.decode()
    assert "<script>" not in text and "style=" not in text and "default-src 'self'" in answer["Content-Security-Policy"]
    return text


def commands(client: Client) -> list[str]:
    return [unescape(found) for found in re.findall(r'<pre class="runs"[^>]*>(.*?)</pre>', page_of(client), re.S)]


def typed(command: str, site: str) -> str:
    """What a person sees who types it, with this test's site in place of the configured one."""
    assert settings.SEPAL_URL in command
    done = subprocess.run(
        ["bash", "-c", command.replace(settings.SEPAL_URL, site)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@pytest.mark.django_db(transaction=True)
def test_every_example_runs_as_it_stands(client: Client, live_server: Any) -> None:
    seen(HOLED)
    first, second, third, headers, again = commands(client)
    assert json.loads(typed(first, live_server.url))["items"][0]["prefix"] == "tiny-hf"
    assert json.loads(typed(second, live_server.url))["items"][0]["cards"]
    assert json.loads(typed(third, live_server.url))["items"] == []
    shown = typed(headers, live_server.url)
    assert shown.startswith("HTTP/1.1 200")
    # Where an answer has an ETag, asking again with it must cost nothing.
    assert typed(again, live_server.url).strip() == ("304" if re.search(r"^etag:", shown, re.I | re.M) else "200")


def test_only_calls_that_this_site_has_are_named() -> None:
    assert [job.path for job in jobs.offered(lambda path: "state" in path)] == ["/api/v1/state"]
    here = jobs.offered(jobs.is_here)
    assert {"/api/v1/models/MODEL", "/metrics", "/api/v1/hint", "/api/v1/state"} <= {job.path for job in here}
    assert not jobs.is_here("/no/such/address")


@pytest.mark.django_db
def test_the_reference_holds_every_operation_of_the_openapi_document(client: Client) -> None:
    document = api.get_openapi_schema()
    listed = [operation for group in reference.groups(document) for operation in group.operations]
    assert {(one.path, one.method.lower()) for one in listed} == {
        (path, method) for path, item in document["paths"].items() for method in item if method in reference.METHODS
    }
    assert len({one.anchor for one in listed}) == len(listed)
    text = page_of(client)
    for one in listed:
        assert f'id="{one.anchor}"' in text and one.path in unescape(text), one.path


def test_parameters_and_members_are_told_with_their_kinds() -> None:
    listed = {one.path: one for group in reference.groups(api.get_openapi_schema()) for one in group.operations}
    limit = next(one for one in listed["/api/v1/incidents"].parameters if one.name == "limit")
    assert limit.kind == "integer, 1 to 500" and "Default 100." in limit.words and not limit.required
    peer = next(one for one in listed["/api/v1/hint"].body if one.name == "peer")
    assert peer.kind == "text, up to 64 characters" and peer.required
    current = next(one for one in listed["/api/v1/hint"].body if one.name == "current")
    assert current.kind.endswith("or null")
    members = [one.name for one in listed["/api/v1/needed"].answers[0].fields]
    assert {"items", "items[].prefix"} <= set(members)


@pytest.mark.django_db
def test_every_error_leads_to_what_one_can_do(client: Client) -> None:
    seen(HOLED)
    text = page_of(client)
    wrong = [
        client.get("/api/v1/nothing"),
        client.get("/api/v1/models/nothing"),
        client.get("/api/v1/fits", {"model": "tiny-hf", "memory_gb": -1}),
        client.post("/api/v1/hint", "{", content_type="application/json"),
        client.post("/api/v1/hint", "x" * 40_000, content_type="application/json"),
    ]
    for answer in wrong:
        problem = answer.json()
        assert answer["Content-Type"].startswith("application/problem+json") and problem["status"] == answer.status_code
        assert f'href="{problem["type"]}"' in text and client.get(problem["type"]).status_code == 200, problem
    assert {kind.status for kind in CATALOGUE} >= {answer.status_code for answer in wrong} | {401, 429, 500, 503}
