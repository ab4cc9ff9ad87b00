"""For everyone: no page breaks a rule of WCAG 2.2 AA in either theme at any width, scrolls sideways, asks another host for
anything, or does what its own policy forbids.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from monitor.history.models import Incident
from monitor.store import store
from tests.browser.conftest import is_wrong
from tests.browser.seen_pages import PAGES
from tests.showcase import crawled, large, middle, seed_all, small

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.browser]

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], "resultTypes": ["violations"]}
WIDTHS = (1280, 375, 320)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOUND = """async (rules) => (await axe.run(document, rules)).violations.map(
    (broken) => `${broken.id}: ${broken.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


def test_every_page_is_for_everyone(browser: Browser, site: str, transactional_db: None, subtests: pytest.Subtests) -> None:
    """One swarm and one tab for all: making them costs more than looking at most pages does."""
    seed_all(time.time())
    places = {"incident": Incident.objects.order_by("pk").first().pk}  # type: ignore[union-attr]
    context = browser.new_context(base_url=site, reduced_motion="reduce")
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if is_wrong(said) else None)
    page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith((site, "ws:", "data:")) else None)
    for name, path in PAGES.items():
        with subtests.test(name):
            now = time.time()
            store(crawled(now, large(now), middle(now), small(now)))
            complaints.clear()
            look_at(page, path.format(**places))
            assert complaints == []
    context.close()


def look_at(page: Page, path: str) -> None:
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    response = page.goto(path)
    assert response is not None and "unsafe" not in response.headers["content-security-policy"]
    assert page.locator("h1").count() == 1 and page.locator("table").count() == page.locator("table > caption").count()
    page.evaluate(AXE)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(SIDEWAYS) <= 0, f"{width} px"
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(FOUND, RULES) == [], f"{width} px, {scheme}"
