"""Alerts in a real browser, without scripts. How their pages look is seen with all others (test_everyone.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import connection
from playwright.sync_api import Page, expect

from monitor.alerts.models import Subscription
from monitor.exports.models import Export
from tests.monitor.seeding import online, seed
from tests.swarms import model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]
SECRET = "x" * 32


@pytest.fixture(autouse=True)
def _a_site() -> None:
    """Made in a thread: Playwright's event loop occupies this one."""

    def make() -> None:
        now = datetime.now(UTC)
        seed(model(2, online("a", 0, 2, at=time.time())), at=time.time())
        about = {"swarm": "main", "topic": "model", "prefix": "tiny-hf", "secret": SECRET, "created_at": now}
        Subscription.objects.create(way="webhook", address="https://hooks.example/x", **about)
        Export.objects.create(day=now.date(), made_at=now, lines=1, size=1, sha256="0" * 64, body=b"x")
        connection.close()

    with ThreadPoolExecutor(1) as worker:
        worker.submit(make).result(60)


def test_an_alert_is_asked_for_confirmed_and_removed_without_javascript(open_page: Open) -> None:
    page = open_page("/alerts", java_script_enabled=False)
    page.get_by_label("Tell me when").select_option("redundancy")
    page.get_by_label("Target, servers a block").fill("3")
    page.get_by_label("The webhook's https address").fill("https://hooks.example/y")
    page.get_by_role("button", name="Ask for it").click()
    expect(page.locator("h1")).to_have_text("One more step")
    expect(page.get_by_label("Signing key")).to_be_visible()
    page.goto(f"/alerts/{SECRET}")
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("status")).to_contain_text("Confirmed")
    page.get_by_role("button", name="Send a test").click()
    expect(page.locator("table")).to_contain_text("Test from Sepal")
    page.get_by_role("button", name="Remove this alert").click()
    expect(page.locator("h1")).to_have_text("Removed")
