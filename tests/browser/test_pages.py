"""The pages in a real browser: they change by themselves, say the same without JavaScript, and fit a phone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from playwright.sync_api import Page, expect

from monitor import live
from monitor.models import Crawl, ServerRow, WatchedModel
from swarm.snapshot import Dropped, Model, PeerState
from tests.browser.conftest import PATIENCE_MS, caught_up
from tests.monitor.seeding import SWARM, announced, online, seed, unreachable
from tests.swarms import model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]

HOLE = "✕ tiny-hf cannot run: block 4 has no server"
WHOLE = "✓ tiny-hf runs; every block has two or more servers"
MOBILE = {"viewport": {"width": 320, "height": 667}, "is_mobile": True}


def whole(now: float) -> Model:
    return model(8, online("a", 0, 5, at=now), online("b", 0, 8, at=now), online("c", 4, 8, at=now))


def with_a_hole(now: float) -> Model:
    return model(
        8, online("a", 0, 4, at=now), online("d", 0, 4, at=now), online("c", 5, 8, at=now), unreachable("b", 0, 8, at=now)
    )


def store_and_push(made: Callable[[float], Model]) -> None:
    seed(made(time.time()), at=time.time())
    push()


def push() -> None:
    """As the worker does it: in a thread without Playwright's event loop."""

    def pushed() -> None:
        live.push(SWARM)
        connection.close()

    with ThreadPoolExecutor(1) as worker:
        worker.submit(pushed).result(60)


def settled(page: Page) -> None:
    """Connected and caught up: what happens from now on, the page hears of by pushes only. That the network is idle does not
    say so: it is once, early, where the socket takes its time."""
    expect(page.locator("#live-note")).to_have_text("Live")
    ends_at = time.monotonic() + PATIENCE_MS / 1000
    while page not in caught_up:
        assert time.monotonic() < ends_at, "it never asked what it has missed"
        page.wait_for_timeout(20)


def heading(page: Page) -> str:
    """Without since when it is so."""
    return " ".join(page.locator("h1").inner_text().split()).partition(" (")[0]


def test_a_gap_appears_and_vanishes_on_the_open_page(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf")
    expect(page.locator("h1")).to_contain_text(WHOLE)
    expect(page.locator("#live-note")).to_have_text("Live")
    loaded = page.evaluate("performance.timeOrigin")
    store_and_push(with_a_hole)
    expect(page.locator("h1")).to_contain_text(HOLE)
    expect(page).to_have_title(HOLE)
    expect(page.locator("#b4")).to_have_class("cell n0")
    expect(page.locator("#gaps")).to_contain_text("block 4")
    store_and_push(whole)
    expect(page.locator("h1")).to_contain_text(WHOLE)
    expect(page.locator("#b4")).to_have_class("cell n3")
    assert page.evaluate("performance.timeOrigin") == loaded, "without a reload"


def test_focus_and_open_details_survive_a_push(open_page: Open) -> None:
    now = time.time()
    seed(whole(now), at=now, dropped=(Dropped("tiny-hf.1", "'x'", "subkey", "no peer id"),))
    page = open_page("/m/tiny-hf")
    expect(page.locator("#live-note")).to_have_text("Live")
    page.locator("#dropped summary").click()
    expect(page.locator("#dropped summary")).to_be_focused()
    seed(with_a_hole(time.time()), at=time.time(), dropped=(Dropped("tiny-hf.1", "'y'", "subkey", "still none"),))
    push()
    expect(page.locator("h1")).to_contain_text(HOLE)
    expect(page.locator("#dropped")).to_have_attribute("open", "")
    expect(page.locator("#dropped")).to_contain_text("still none")
    expect(page.locator("#dropped summary")).to_be_focused()


def test_paused_updates_wait_and_come_when_resumed(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    page, other = open_page("/m/tiny-hf"), open_page("/m/tiny-hf")
    for tab in (page, other):
        expect(tab.locator("#live-note")).to_have_text("Live")
    page.get_by_role("button", name="Pause updates").click()
    expect(page.locator("#live-note")).to_have_text("Updates are paused")
    store_and_push(with_a_hole)
    expect(other.locator("h1")).to_contain_text(HOLE)
    expect(page.locator("h1")).to_contain_text(WHOLE)
    page.get_by_role("button", name="Resume updates").click()
    expect(page.locator("h1")).to_contain_text(HOLE)


def test_a_page_whose_socket_is_gone_says_so_and_polls_for_what_is_new(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    polls: list[int] = []
    page = open_page("/", prepare=lambda opened: (
        opened.clock.install(),
        opened.route_web_socket(re.compile("/ws/"), lambda socket: socket.close(code=1013)),
        opened.on("response", lambda answer: polls.append(answer.status) if "fragment" in answer.url else None),
    ))  # fmt: skip
    expect(page.locator("h1")).to_contain_text(WHOLE)
    with page.expect_response(re.compile("fragment=all")):
        page.clock.run_for(15_000)
    page.wait_for_load_state("networkidle")
    assert polls == [304], "it has what there is"
    expect(page.locator("#live-note")).to_have_text("No live updates: reconnecting")
    seed(with_a_hole(time.time()), at=time.time())
    page.clock.run_for(60_000)
    expect(page.locator("h1")).to_contain_text(HOLE)


def test_times_count_on_by_themselves(open_page: Open) -> None:
    now = time.time()
    seed(whole(now), at=now)
    page = open_page("/m/tiny-hf", prepare=lambda opened: opened.clock.install())
    settled(page)
    page.clock.run_for(65_000)
    expect(page.locator("#checked")).to_contain_text("Checked 1 min ago")


def test_a_page_learns_that_it_is_stale_though_nobody_pushes(open_page: Open) -> None:
    now = time.time()
    seed(whole(now), at=now)
    page = open_page("/m/tiny-hf", prepare=lambda opened: opened.clock.install())
    expect(page.locator("h1")).to_contain_text(WHOLE)
    settled(page)
    for table in (Crawl, WatchedModel, ServerRow):
        table.objects.update(observed_at=F("observed_at") - timedelta(minutes=7))
    page.clock.run_for(120_000)
    expect(page.locator("h1")).to_contain_text("? tiny-hf: unknown — ran 7 min ago")


def test_without_javascript_the_page_states_the_same_facts(open_page: Open) -> None:
    seed(with_a_hole(time.time()), at=time.time())
    plain = open_page("/m/tiny-hf", java_script_enabled=False)
    assert heading(plain) == HOLE
    assert plain.locator("#b4").get_attribute("aria-label") == "✕ no server online, block 4"
    for place, words in (("#gaps", "block 4"), ("#servers", "unreachable")):
        assert words in plain.locator(place).inner_text()
    assert plain.locator("#live-bar").is_hidden()
    assert "reload" in plain.locator("main").inner_text()
    live_page = open_page("/m/tiny-hf")
    facts = [
        [" ".join(page.locator(place).inner_text().split()) for place in ("#gaps", "#servers", "#cells", "#h-bars", "#p-speed")]
        for page in (plain, live_page)
    ]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("path", ["/", "/m/tiny-hf"])
def test_a_phone_of_320_pixels_does_not_scroll_sideways(open_page: Open, path: str) -> None:
    now = time.time()
    long = online("x" * 64, 0, 8, at=now)
    wordy = replace(long, record=replace(long.record, version="9" * 64), visit=None, state=PeerState.NOT_CHECKED)
    joining = announced("j", 4, 5, PeerState.JOINING, at=now)
    made = with_a_hole(now)
    seed(
        replace(made, servers=(*made.servers, joining, wordy)),
        at=now,
        dropped=(Dropped("tiny-hf.4", "x" * 80, "subkey", "y" * 200),),
    )
    page = open_page(path, **MOBILE)
    page.locator("#dropped summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.locator("h1").bounding_box()["y"] < 667  # type: ignore[index]
    wide = open_page(path, viewport={"width": 1280, "height": 800})
    assert wide.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_targets_are_big_enough_and_text_stands_out(open_page: Open, scheme: str) -> None:
    seed(with_a_hole(time.time()), at=time.time(), dropped=(Dropped("tiny-hf.1", "'x'", "subkey", "no"),))
    for path in ("/", "/m/tiny-hf"):
        page = open_page(path, color_scheme=scheme)
        heights = page.locator(
            "button:visible, summary:visible, input:visible, h2 a, header a:visible, footer a:visible, .cells a, td a, th a"
        ).evaluate_all("found => found.map(e => e.getBoundingClientRect().height)")
        assert len(heights) > 4 and min(heights) >= 24
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        assert dark == (scheme == "dark")


def test_tables_have_captions_and_sections_headings(open_page: Open) -> None:
    seed(with_a_hole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf")
    assert page.locator("table").count() == page.locator("table > caption").count() > 0
    assert page.locator("h1").count() == 1
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
