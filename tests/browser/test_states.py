"""The answer in one look: without scripts, on a phone, the first heading says whether it can be used, in every state."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Page

from monitor.store import store
from swarm.snapshot import Model
from tests.browser.test_everyone import AXE, FOUND, RULES
from tests.browser.test_pages import whole, with_a_hole
from tests.monitor.seeding import failure, online, report, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]
PHONE = {"viewport": {"width": 375, "height": 667}, "is_mobile": True}
SINCE = r" \(\d+ (s|min|h|d)\)"


def thin(now: float) -> Model:
    return model(8, online("a", 0, 8, at=now), online("b", 0, 7, at=now))


def unread(now: float) -> Model:
    return model(8, online("a", 0, 5, at=now), online("b", 7, 8, at=now), unread=frozenset({5, 6}))


def two_models(now: float) -> None:
    store(report(now, whole(now), replace(with_a_hole(now), prefix="other-hf")))


def plenty(now: float) -> Model:
    return model(4, *(online(f"s{n}", 0, 4, at=now) for n in range(7)))


def nothing(now: float) -> None:
    """The monitor has just been started."""


STATES: dict[str, tuple[Callable[[float], object], str, str]] = {
    "complete": (
        lambda now: seed(whole(now), at=now),
        "/m/tiny-hf",
        r"✓ tiny-hf runs; every block has two or more servers" + SINCE,
    ),
    "thin": (lambda now: seed(thin(now), at=now), "/m/tiny-hf", r"! tiny-hf runs, but block 7 has only one server" + SINCE),
    "broken": (
        lambda now: seed(with_a_hole(now), at=now),
        "/m/tiny-hf",
        r"✕ tiny-hf cannot run: block 4 has no server" + SINCE,
    ),
    "unread": (
        lambda now: seed(unread(now), at=now),
        "/m/tiny-hf",
        r"\? tiny-hf: unknown — blocks 5–6 could not be read" + SINCE,
    ),
    "stale": (lambda now: seed(whole(now), at=now - 420), "/m/tiny-hf", r"\? tiny-hf: unknown — ran 7 min ago"),
    "blind": (lambda now: store(failure(now, "no bootstrap peer answers")), "/", r"\? Unknown: we cannot see the swarm"),
    "first start": (nothing, "/", r"\? Unknown: first check running"),
    "empty": (lambda now: seed(at=now), "/", r"\? No model has been announced in this swarm yet"),
    "wrong prefix": (lambda now: seed(whole(now), at=now), "/m/tiny", r"\? No servers for prefix tiny"),
    "several models": (two_models, "/", r"✕ 1 of 2 models cannot run"),
    "nothing needed": (
        lambda now: seed(plenty(now), at=now),
        "/",
        r"✓ tiny-hf runs; every block has two or more servers" + SINCE,
    ),
    "never seen": (lambda now: seed(whole(now), at=now), f"/p/{peer_id('x')}", r"\? Unknown: we have never seen …\w{6}"),
    "unreachable": (
        lambda now: seed(model(8, unreachable("u", 0, 8, at=now)), at=now),
        f"/p/{peer_id('u')}",
        r"✕ Unreachable: announced for blocks 0–7 of tiny-hf, but it does not answer us",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_the_first_heading_says_it_within_the_first_view_of_a_phone(open_page: Open, state: str) -> None:
    made, path, pattern = STATES[state]
    made(time.time())
    page = open_page(path, java_script_enabled=False, **PHONE)
    heading = page.locator("h1")
    assert re.fullmatch(pattern, " ".join(heading.inner_text().split()))
    box = heading.bounding_box()
    assert box is not None and box["y"] + box["height"] <= PHONE["viewport"]["height"]  # type: ignore[index]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_that_knows_nothing_is_for_everyone_too(open_page: Open, scheme: str) -> None:
    for state in ("first start", "stale", "blind"):
        made, path, _ = STATES[state]
        made(time.time())
        page = open_page(path, color_scheme=scheme, reduced_motion="reduce", viewport={"width": 320, "height": 640})
        page.evaluate(AXE)
        assert page.evaluate(FOUND, RULES) == [], state
