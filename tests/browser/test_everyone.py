"""For everyone: no page breaks a rule of WCAG 2.2 AA in either theme at any width, scrolls sideways, asks another host for
anything, or does what its own policy forbids.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from playwright.sync_api import Browser, Page

from monitor.history.models import Incident
from monitor.store import store
from tests.browser.seen_pages import PAGES
from tests.showcase import crawled, large, middle, seed_all, small

pytestmark = [pytest.mark.slow, pytest.mark.browser]

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], "resultTypes": ["violations"]}
WIDTHS = (1280, 375, 320)
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOUND = """async (rules) => (await axe.run(document, rules)).violations.map(
    (broken) => `${broken.id}: ${broken.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


@pytest.fixture(scope="module")
def showcase(browser: Browser, django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, object]]:
    """One swarm for all pages; what is needed in their addresses."""
    with django_db_blocker.unblock():
        seed_all(time.time())
        yield {"incident": Incident.objects.order_by("pk").first().pk}  # type: ignore[union-attr]
        call_command("flush", interactive=False, verbosity=0)


@pytest.fixture(scope="module")
def page(browser: Browser, site: str) -> Iterator[Page]:
    """One tab for all: starting it costs more than most pages do."""
    context = browser.new_context(base_url=site, reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everyone(showcase: dict[str, object], page: Page, site: str, name: str) -> None:
    now = time.time()
    store(crawled(now, large(now), middle(now), small(now)))
    complaints: list[str] = []

    def said(message: Any) -> None:
        # A page that is not there is answered 404, which the console notes.
        if message.type in ("error", "warning") and "status of 404" not in message.text:
            complaints.append(message.text)

    def asked(request: Any) -> None:
        if not request.url.startswith((site, "ws:", "data:")):
            complaints.append(f"asked {request.url}")

    page.on("console", said)
    page.on("request", asked)
    try:
        response = page.goto(PAGES[name].format(**showcase))
        assert response is not None and "unsafe" not in response.headers["content-security-policy"]
        assert page.locator("h1").count() == 1 and page.locator("table").count() == page.locator("table > caption").count()
        page.evaluate(AXE)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate(SIDEWAYS) == 0, f"{width} px"
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                assert page.evaluate(FOUND, RULES) == [], f"{width} px, {scheme}"
    finally:
        page.remove_listener("console", said)
        page.remove_listener("request", asked)
        page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    assert complaints == []
