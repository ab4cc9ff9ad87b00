"""A site that has little to show yet, in a real browser: how far its first check is, and a server's first hour as drawings."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.core.cache import cache
from playwright.sync_api import expect

from monitor import telling
from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.progress import Progress, Stage
from tests.browser.test_pages import Open, push, store_and_push, whole
from tests.monitor.seeding import SWARM, seed
from tests.monitor.test_cache_left import with_room
from tests.swarms import model, peer_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _nothing_told() -> Iterator[None]:
    cache.delete(telling._key(SWARM))
    yield
    cache.delete(telling._key(SWARM))


def tell(stage: Stage, **counts: tuple[int, int]) -> None:
    now = time.time()
    by_stage = {Stage(name): count for name, count in counts.items()}
    cache.set(telling._key(SWARM), Progress(now - 2, now, stage, by_stage).as_json())
    push()


def test_the_open_page_follows_the_first_check_until_there_is_something_to_show(open_page: Open) -> None:
    page = open_page("/")
    expect(page.locator("#p-top")).to_contain_text("Waiting for the first check")
    expect(page.locator("#live-note")).to_have_text("Live")
    tell(Stage.ENTRANCES, entrances=(0, 3))
    expect(page.locator("#p-top")).to_contain_text("asking 3 bootstrap peers")
    tell(Stage.BLOCKS, entrances=(2, 3), models=(1, 1), blocks=(41, 126))
    expect(page.locator("#p-top")).to_contain_text("(bootstrap 2/3, 1 model, 41 of 126 blocks read)")
    store_and_push(whole)
    expect(page.locator("h1")).to_contain_text("tiny-hf runs")
    expect(page.locator("#p-top")).not_to_contain_text("First check")


def test_throughput_and_cache_of_a_server_are_drawn_and_can_be_read(open_page: Open) -> None:
    now = time.time()
    seed(model(2, with_room("a", 500)), at=now)
    rollups.roll_up(moment(now))
    page = open_page(f"/p/{peer_id('a')}")
    expect(page.locator(".plot canvas")).to_have_count(2)
    page.locator("#hours-tiny-hf-table summary").click()
    expect(page.locator("#hours-tiny-hf tbody tr").last).to_contain_text("500")
    # The last hour stands at the right end of the drawing.
    drawing = page.locator(".plot .u-over").nth(1)
    box = drawing.bounding_box()
    assert box is not None
    drawing.hover(position={"x": box["width"] - 1, "y": 20})
    expect(page.locator(".plot + .axis").nth(1)).to_contain_text("500 tokens")
