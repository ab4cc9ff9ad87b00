"""Requests made up from the OpenAPI document, right and wrong ones: whatever is asked, the answer is one that it promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from celery import current_app
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, settings

from monitor import reachability
from monitor.limits import Limit
from swarm.wire.keys import MAX_BLOCKS, looks_like_peer_id
from tests.monitor.api.conftest import fill, snapshot_id
from tests.monitor.api.test_openapi import WRITTEN
from tests.swarms import peer_id

EXAMPLES = 5
"""For each operation, beside those that schemathesis makes for every boundary: some two thousand requests in all."""

schema = schemathesis.openapi.from_dict(WRITTEN)
schema.app = get_wsgi_application()
# As far as schemathesis has them, with "too long", without any excuse for an error of ours.
schema.config.checks.negative_data_rejection.expected_statuses = [
    "400",
    "401",
    "403",
    "404",
    "405",
    "406",
    "409",
    "413",
    "415",
    "422",
    "428",
    "429",
]


@pytest.fixture
def _no_limits_and_nobody_to_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.api.middleware.READS_OF_AN_ADDRESS", Limit("read", 10**9))
    for name in ("PLANS_OF_AN_ADDRESS", "REQUESTS_OF_AN_ADDRESS"):
        monkeypatch.setattr(f"coordinator.limits.{name}", Limit(name, 10**9))
    monkeypatch.setattr("monitor.api.petals.DIALS_OF_AN_ADDRESS", Limit("dial", 10**9))
    monkeypatch.setattr(current_app._get_current_object(), "send_task", _reached)


@pytest.fixture(scope="module")
def _filled_once(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The site of all these tests, in a transaction that is taken back in the end. As with Django's own test client, no
    request closes its connection."""
    signals = (request_started, request_finished)
    with django_db_blocker.unblock(), transaction.atomic():
        fill()
        for signal in signals:
            signal.disconnect(close_old_connections)
        yield
        for signal in signals:
            signal.connect(close_old_connections)
        transaction.set_rollback(True)


def _reached(name: str, args: list[str], **_: Any) -> None:
    cache.set(reachability.answer_key(args[1]), {"checked": True, "success": True, "message": "reached"})


def _known(name: str, value: Any) -> Any:
    """In place of half of what is made up, something that there is."""
    there = {"prefix": "broken-hf", "model": "broken-hf", "peer_id": peer_id("a"), "swarm": "main"}
    there |= {"snapshot_id": snapshot_id, "crawl_id": snapshot_id}
    given = there.get(name)
    if given is None or len(str(value)) % 2:
        return value
    return given() if callable(given) else given


def _with_real_peer_ids(place: Any) -> None:
    """A peer id is a digest or a key, of which a pattern says too little for one to be made up."""
    for key, value in [*(place.items() if isinstance(place, dict) else enumerate(place) if isinstance(place, list) else ())]:
        if isinstance(value, str) and looks_like_peer_id(value):
            place[key] = peer_id("a")
        _with_real_peer_ids(value)


def _as_counted(body: Any) -> None:
    """No schema can say that of some requests no more can have failed."""
    servers = body.get("servers") if isinstance(body, dict) else None
    for server in servers if isinstance(servers, list) else ():
        requests, failures = (server.get(name) if isinstance(server, dict) else None for name in ("requests", "failures"))
        if isinstance(requests, int | float) and isinstance(failures, int | float) and 1_000_000 >= failures > requests >= 1:
            server["failures"] = requests


def _as_spans(body: Any) -> None:
    """No schema can say that a span begins before it ends."""
    also = body.get("also") if isinstance(body, dict) else None
    for told in (body, *(also if isinstance(also, list) else ())):
        if not isinstance(told, dict):
            continue
        on_disk = told.get("on_disk")
        for span in (told.get("current"), *(on_disk if isinstance(on_disk, list) else ())):
            if not isinstance(span, dict) or not all(isinstance(span.get(name), int | float) for name in ("start", "end")):
                continue
            if MAX_BLOCKS > span["start"] >= span["end"] >= 1:
                span["start"] = 0


def _each_model_once(body: Any) -> None:
    """No schema can say that the models of a list differ, nor that they differ from one beside it."""
    also = body.get("also") if isinstance(body, dict) else None
    named = {body.get("model")} if isinstance(also, list) and isinstance(body.get("model"), str) else set()
    for number, other in enumerate(also if isinstance(also, list) else ()):
        prefix = other.get("model") if isinstance(other, dict) else None
        if isinstance(prefix, str) and 0 < len(prefix) <= 128:
            other["model"] = f"{prefix[:120]}-{number}" if prefix in named else prefix
            named.add(other["model"])


@schema.hook("map_path_parameters")
def known_things(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    return {name: _known(name, value) for name, value in path_parameters.items()} if path_parameters else path_parameters


@schema.hook("map_query")
def known_names(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    return {name: _known(name, value) for name, value in query.items()} if query else query


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.usefixtures("_filled_once", "clock", "_no_limits_and_nobody_to_dial")
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_asked_is_answered_as_promised(case: Any) -> None:
    for place in (case.body, case.query):
        _with_real_peer_ids(place)
    _as_spans(case.body)
    _each_model_once(case.body)
    _as_counted(case.body)
    case.call_and_validate()
