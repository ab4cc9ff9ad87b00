from __future__ import annotations

import uuid
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _own_corner_of_redis(settings: Any) -> None:
    """What one test has counted is no other test's business."""
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": uuid.uuid4().hex}}


@pytest.fixture(autouse=True)
def asked_for_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No worker runs here: how often one was asked for."""
    asked: list[int] = []
    monkeypatch.setattr("monitor.alerts.outbox._ask_for_a_run", lambda: asked.append(1))
    return asked
