"""Open pages under stress: a hundred pushes, lost and late messages, Redis restarted, a keyboard, a verdict that flutters."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.cache import cache
from playwright.sync_api import Page, WebSocketRoute, expect
from redis import Redis

from coordinator.launch.binaries import valkey_program
from tests.browser.conftest import leave
from tests.browser.test_pages import HOLE, WHOLE, push, settled, store_and_push, whole, with_a_hole
from tests.monitor.seeding import seed
from tests.sites import ROOT, running_site
from tests.swarms import peer_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]
PUSHES = 100


def test_focus_selection_and_open_details_survive_a_hundred_pushes(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf")
    settled(page)
    page.locator("#table-order summary").click()
    page.locator("#b4").focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#h-blocks'))")
    page.evaluate("window.taken = 0; document.addEventListener('sepal:swapped', () => (window.taken += 1))")
    loaded = page.evaluate("performance.timeOrigin")
    for turn in range(PUSHES):
        if turn % 10 == 0:  # Storing takes longer than pushing; between, there is nothing new to say.
            seed((with_a_hole if turn % 20 else whole)(time.time()), at=time.time())
        push()
    page.wait_for_function(f"window.taken >= {PUSHES}")
    store_and_push(with_a_hole)
    expect(page.locator("h1")).to_contain_text(HOLE)
    expect(page.locator("#b4")).to_be_focused()
    expect(page.locator("#table-order")).to_have_attribute("open", "")
    assert page.evaluate("getSelection().toString()") == "Servers online per block"
    assert page.evaluate("performance.timeOrigin") == loaded


def test_a_message_that_was_lost_is_made_up_for_by_the_next(open_page: Open) -> None:
    """What all parts should be travels with each message."""
    lost: list[str] = []

    def lossy(here: WebSocketRoute) -> None:
        there = here.connect_to_server()
        there.on_message(lambda message: here.send(message) if lost else lost.append(str(message)))

    cache.clear()  # What earlier tests pushed last is forgotten: this push brings everything, and is lost.
    seed(whole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf", prepare=lambda opened: opened.route_web_socket(re.compile("/ws/"), lossy))
    settled(page)
    store_and_push(with_a_hole)
    while not lost:
        page.wait_for_timeout(20)
    expect(page.locator("h1")).to_contain_text(WHOLE)
    push()
    expect(page.locator("#b4")).to_have_class("cell n0")
    expect(page.locator("h1")).to_contain_text(HOLE)
    assert "blocks" in json.loads(lost[0])["parts"], "it was in the message that never came"


def test_a_slow_socket_ends_in_the_newest_state(open_page: Open) -> None:
    """Messages that come late and all at once are taken in their order."""
    late: list[str] = []
    sockets: list[WebSocketRoute] = []

    def slow(here: WebSocketRoute) -> None:
        sockets.append(here)
        here.connect_to_server().on_message(lambda message: late.append(str(message)))

    seed(whole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf", prepare=lambda opened: opened.route_web_socket(re.compile("/ws/"), slow))
    settled(page)
    for made in (with_a_hole, whole, with_a_hole):
        store_and_push(made)
    while len(late) < 3:
        page.wait_for_timeout(20)
    expect(page.locator("h1")).to_contain_text(WHOLE)
    for message in late:
        sockets[0].send(message)
    expect(page.locator("h1")).to_contain_text(HOLE)
    expect(page.locator("#b4")).to_have_class("cell n0")
    expect(page.locator("#gaps")).to_contain_text("block 4")


def test_a_page_of_one_server_asks_when_there_is_news(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    page = open_page(f"/p/{peer_id('b')}")
    expect(page.locator("h1")).to_contain_text("Online, serving blocks 0–7 of tiny-hf")
    settled(page)
    store_and_push(with_a_hole)
    expect(page.locator("h1")).to_contain_text("Unreachable: announced for blocks 0–7 of tiny-hf")


def test_a_filtered_table_keeps_its_filter(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf?state=unreachable")
    expect(page.locator("#servers")).to_contain_text("No servers match state=unreachable")
    settled(page)
    store_and_push(with_a_hole)
    expect(page.locator("#server-table tbody tr")).to_have_count(1)
    expect(page.locator("#server-table")).to_contain_text("it did not answer in time")


def test_verdicts_are_told_to_screen_readers_once_a_minute_at_most(open_page: Open) -> None:
    seed(whole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf", prepare=lambda opened: opened.clock.install())
    settled(page)
    told = page.locator("#verdict-changed")
    store_and_push(with_a_hole)
    expect(page.locator("h1")).to_contain_text(HOLE)
    page.clock.run_for(2_000)
    expect(told).to_have_text(HOLE)
    store_and_push(whole)
    expect(page.locator("h1")).to_contain_text(WHOLE)
    page.clock.run_for(30_000)
    expect(told).to_have_text(HOLE)
    page.clock.run_for(40_000)
    expect(told).to_have_text(WHOLE)


def test_everything_is_reached_with_the_keyboard(open_page: Open) -> None:
    seed(with_a_hole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf")
    settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "b4":
            break
    expect(page.locator("#b4")).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"\?block=4#servers"))
    expect(page.locator("#servers")).to_contain_text("1 of 4 match block=4")
    page.locator("#table-order summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="throughput").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("sort=fastest"))


def test_theme_search_and_pages_work_without_javascript(open_page: Open) -> None:
    seed(with_a_hole(time.time()), at=time.time())
    page = open_page("/m/tiny-hf", java_script_enabled=False, color_scheme="light")
    page.get_by_role("button", name="dark").click()
    expect(page).to_have_url(re.compile("/m/tiny-hf$"))
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("searchbox").fill(peer_id("b")[-6:])
    page.get_by_role("button", name="Find").click()
    expect(page.locator("h1")).to_contain_text("Unreachable")
    page.get_by_role("link", name="tiny-hf").click()
    page.locator("#b5").click()
    expect(page.locator("#servers")).to_contain_text("2 of 4 match block=5")


class OwnRedis:
    """A Redis of this test's own, which can be stopped and started at the same port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.program = valkey_program(os.environ, folder, None)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        command = [str(self.program), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert any("Ready to accept connections" in line for line in self.process.stdout)

    def wait_for_a_listener(self) -> None:
        """What is sent before the site has subscribed again is lost until the next check sends again; this test sends once."""
        with Redis.from_url(self.url) as client:
            for _ in range(600):
                if client.pubsub_channels("*"):
                    return
                time.sleep(0.05)
        raise AssertionError("the site did not subscribe again")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    redis = OwnRedis(tmp_path)
    yield redis
    redis.stop()


def test_open_pages_outlive_a_restart_of_redis(open_page: Open, own_redis: OwnRedis) -> None:
    def push_through_it() -> None:
        program = f"import django; django.setup(); from monitor import live; live.push({'main'!r})"
        env = {**os.environ, **running_env, "DJANGO_SETTINGS_MODULE": "coordinator.settings"}
        subprocess.run([sys.executable, "-c", program], env=env, cwd=ROOT, check=True, timeout=180)

    seed(whole(time.time()), at=time.time())
    with running_site(REDIS_URL=own_redis.url) as (address, running_env):
        page = open_page(f"{address}/m/tiny-hf", base=address)
        settled(page)
        own_redis.stop()
        own_redis.start()
        own_redis.wait_for_a_listener()
        seed(with_a_hole(time.time()), at=time.time())
        push_through_it()
        expect(page.locator("h1")).to_contain_text(HOLE)
        expect(page.locator("#live-note")).to_have_text("Live")
        own_redis.stop()
        # Without Redis a page still opens, says that it is not live, and has the facts.
        other = open_page(f"{address}/m/tiny-hf", base=address)
        expect(other.locator("h1")).to_contain_text(HOLE)
        leave(page, other)
