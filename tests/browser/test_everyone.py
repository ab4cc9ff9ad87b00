"""For everyone: no page breaks a rule of WCAG 2.2 AA in either theme at any width, scrolls sideways, asks another host for
anything, or does what its own policy forbids; and every link leads somewhere.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page

from coordinator.desk.models import Kind
from monitor.history.incidents import confirmed
from monitor.store import store
from tests.browser.conftest import is_wrong
from tests.browser.seen_pages import NOT_THERE, PAGES
from tests.coordinator.desk.people import decided
from tests.showcase import LARGE, SWARM, crawled, large, middle, seed_all, small
from tests.showcase_people import seed_people

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.browser]

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], "resultTypes": ["violations"]}
WIDTHS = (1280, 375, 320)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ASKS_THE_CRAWL_WORKER = "/api/v1/is_reachable"
"""There is none in this test."""
LINKS = "[...document.querySelectorAll('a[href^=\"/\"], link[href^=\"/\"]')].map((link) => link.getAttribute('href'))"
NUMBERS = {"n0": {"✕"}, "n1": {"1"}, "n2": {"2"}, "n3": {"3", "4", "5"}}
FOUND = """async (rules) => (await axe.run(document, rules)).violations.map(
    (broken) => `${broken.id}: ${broken.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


def test_every_page_is_for_everyone(browser: Browser, site: str, transactional_db: None, subtests: pytest.Subtests) -> None:
    """One swarm and one tab for all: making them costs more than looking at most pages does."""
    seed_all(time.time())
    seed_people(time.time())
    decided(Kind.BANNER, words="Tonight from 20:00 UTC the bootstrap peers move house.")
    places = {"incident": confirmed(SWARM).order_by("pk").first().pk}  # type: ignore[union-attr]
    context = browser.new_context(base_url=site, reduced_motion="reduce")
    page = context.new_page()
    complaints: list[str] = []
    links: set[str] = set()
    page.on("console", lambda said: complaints.append(said.text) if is_wrong(said) else None)
    page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith((site, "ws:", "data:")) else None)
    for name, path in PAGES.items():
        with subtests.test(name):
            now = time.time()
            store(crawled(now, large(now), middle(now), small(now)))
            complaints.clear()
            assert look_at(page, path.format(**places)) == (404 if name in NOT_THERE else 200)
            links |= set(page.evaluate(LINKS))
            assert complaints == []
    with subtests.test("every link leads somewhere"):
        answers = {
            link: context.request.get(link).status for link in one_of_each(links) if not link.startswith(ASKS_THE_CRAWL_WORKER)
        }
        assert {link: status for link, status in answers.items() if status >= 400} == {} and len(answers) > 40
    with subtests.test("without colours"):
        without_colours(page)
    context.close()


def look_at(page: Page, path: str) -> int:
    """The status of the answer."""
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
    return response.status


def one_of_each(links: set[str]) -> list[str]:
    """Of the addresses that differ in a peer id, a hint's number or a figure only, one stands for all."""
    alike: dict[str, str] = {}
    for link in sorted(links):
        alike.setdefault(re.sub(r"12D3Koo\w+|[0-9a-f-]{36}|\d+", "N", link.partition("#")[0]), link)
    return list(alike.values())


def without_colours(page: Page) -> None:
    """Each block's level is told by its number or symbol; a hole in the overview's strip also by its height."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": "achromatopsia"})
    page.goto(f"/m/{LARGE}")
    for level, numbers in NUMBERS.items():
        assert set(page.locator(f"#cells .{level}").all_inner_texts()) <= numbers, level
    assert all(int(text) >= 6 for text in page.locator("#cells .n6").all_inner_texts())
    assert page.locator("#cells .n0").count() and page.locator("#cells .n1").count()
    drawn = {page.locator(f".legend .cell.{level}").first.screenshot() for level in (*NUMBERS, "n6")}
    assert len(drawn) == len(NUMBERS) + 1
    page.goto("/")
    hole, strip = page.locator(".strip .n0").first.bounding_box(), page.locator(".strip").first.bounding_box()
    assert hole is not None and strip is not None and hole["height"] > 1.2 * strip["height"]
