"""The pages for people in a real browser: no scripts, big enough targets, forms that lead on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from playwright.sync_api import Page, expect

from tests.coordinator.test_hints import HOLED, ask, holed
from tests.swarms import peer_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]


@pytest.fixture(autouse=True)
def _one_hint() -> None:
    """Made in a thread: Playwright's event loop occupies this one."""

    def hint() -> None:
        holed()
        for who in HOLED.servers:
            ask(who.record.public_name or "", who.span)
        connection.close()

    with ThreadPoolExecutor(1) as worker:
        worker.submit(hint).result(20)


def paths() -> list[str]:
    from coordinator.models import Lease

    hint = Lease.objects.get()
    return [
        "/connect?memory_gb=24&parameters_b=30&precision=nf4",
        f"/connect/watch?model=tiny-hf&peer={peer_id('c')}&since=1",
        f"/what-if?leaves={peer_id('c')}&add_blocks=6",
        "/hints",
        f"/hints/{hint.pk}",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_targets_are_big_enough_in_both_themes(open_page: Open, scheme: str) -> None:
    for path in paths():
        page = open_page(path, color_scheme=scheme)
        targets = page.locator(
            "button:visible, input:visible, select:visible, header a:visible, footer a:visible, table a:visible"
        )
        heights = targets.evaluate_all("found => found.map(e => e.getBoundingClientRect().height)")
        assert len(heights) >= 4 and min(heights) >= 24, path
        assert page.locator("table").count() == page.locator("table > caption").count()
        assert page.locator("h1").count() == 1


def test_the_forms_lead_on_without_javascript(open_page: Open) -> None:
    page = open_page("/connect", java_script_enabled=False)
    page.get_by_label("or its memory, GB").fill("24")
    page.get_by_label("Parameters, billions").fill("30")
    page.get_by_role("button", name="Show what helps").click()
    expect(page.locator("#fit")).to_contain_text("Fits about 9 blocks")
    page.get_by_role("link", name="systemd").click()
    expect(page.locator("#command")).to_contain_text("ExecStart=")
    expect(page.locator("#fit")).to_contain_text("Fits about 9 blocks")
    page.get_by_role("link", name="What if?").click()
    page.get_by_label("A server comes with so many blocks").fill("12")
    page.get_by_role("button", name="Reckon").click()
    expect(page.locator("#result")).to_be_visible()
    page.get_by_role("link", name="Hints").click()
    page.locator("#hints a").first.click()
    expect(page.locator("h1")).to_contain_text("offered, not answered yet")
