"""The admin and the wizard in a real browser: what they look like to people, and to axe.

With SEPAL_PICTURES=FOLDER in the environment each page is also kept there as a picture.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Page, expect

from coordinator.desk.models import Kind
from swarm.wire.doctor import Mark, encode
from swarm.wire.spans import Span
from tests.coordinator.desk.people import PASSWORD, decided, person
from tests.coordinator.seeding import seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.monitor import seeding
from tests.sites import ROOT
from tests.swarms import model, peer_id, server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]
AXE = ROOT / "tests" / "browser" / "vendor" / "axe.min.js"
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 375, "height": 667}, "is_mobile": True}
NARROW = {"viewport": {"width": 320, "height": 667}, "is_mobile": True}


def in_a_thread(work: Callable[[], Any]) -> Any:
    """Playwright's event loop occupies this thread; there Django would refuse."""

    def done() -> Any:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(done).result(20)


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SEPAL_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def unwell(page: Page) -> list[str]:
    """What axe finds, at WCAG 2.2 AA and its best practice."""
    page.evaluate(AXE.read_text())  # not as a tag: the page's own policy would refuse it
    found = page.evaluate("axe.run(document, {runOnly: ['wcag2a','wcag2aa','wcag21a','wcag21aa','wcag22aa','best-practice']})")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


def a_swarm() -> None:
    joining = server("j", 12, 18, seeding.PeerState.JOINING)
    decided(Kind.BANNER, words="Tonight from 20:00 UTC the bootstrap peers move house.")
    seen(model(30, *HOLED.servers, joining))


def test_the_wizard_leads_on_without_scripts_to_a_checklist(open_page: Open) -> None:
    in_a_thread(a_swarm)
    page = open_page("/connect", java_script_enabled=False)
    page.get_by_label("Card").select_option("rtx-4090")
    page.get_by_label("Parameters, billions").fill("30")
    page.get_by_role("button", name="Show what helps").click()
    expect(page.locator("#fit")).to_contain_text("Fits about 9 blocks")
    page.get_by_label("Its code").fill(encode({"clock": Mark.ERROR}))
    page.get_by_role("button", name="Explain it").click()
    expect(page.locator("#checked-code")).to_contain_text("1 thing keeps this machine from serving")
    expect(page.locator("#fit")).to_contain_text("Fits about 9 blocks")
    page.get_by_role("link", name="container").click()
    expect(page.locator("#command")).to_contain_text("docker run")
    assert page.get_by_role("button", name="Copy").count() == 0
    page.get_by_label("Peer id, from the server's first lines").fill(peer_id("j"))
    page.get_by_role("button", name="Look for it").click()
    expect(page.locator("h1")).to_contain_text("loading")
    expect(page.locator("#steps .done")).to_have_count(1)


def test_the_checklist_renews_itself_when_the_model_s_page_is_pushed(open_page: Open) -> None:
    from asgiref.sync import async_to_sync
    from channels.layers import get_channel_layer

    from monitor.live import group_of

    in_a_thread(a_swarm)
    page = open_page(f"/connect/watch?model=tiny-hf&peer={peer_id('j')}&since=1")
    expect(page.locator("h1")).to_contain_text("loading")
    page.evaluate("window.untouched = true")
    in_a_thread(lambda: seen(model(30, *HOLED.servers, server("j", 12, 18))))

    def pushed() -> None:
        layer = get_channel_layer()
        assert layer is not None
        async_to_sync(layer.group_send)(group_of("m/tiny-hf"), {"type": "page.changed", "html": "<p></p>"})

    # The socket may still be opening; each push is a bell, and one that is heard is enough.
    with page.expect_response(lambda answer: "fragment=1" in answer.url):
        in_a_thread(pushed)
    expect(page.locator("h1")).to_contain_text("serving")
    expect(page.locator("#appearing-said")).to_contain_text("serving")
    assert page.evaluate("window.untouched") is True


def test_a_command_is_copied_with_one_click(open_page: Open) -> None:
    in_a_thread(a_swarm)
    page = open_page("/connect", permissions=["clipboard-read", "clipboard-write"])
    page.locator("button[data-copy='command']").click()
    expect(page.locator("button[data-copy='command']")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#command").text_content()


def logged_in(open_page: Open, **view: Any) -> Page:
    in_a_thread(lambda: person(superuser=True))
    page = open_page("/admin/", **view)
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_title("What needs action | Sepal")
    return page


def a_troubled_swarm() -> None:
    from monitor.models import Crawl

    holed()
    ask("d", Span(0, 12))
    seen(model(30, *HOLED.servers, seeding.unreachable("ghost", 12, 18, at=Crawl.objects.get().started_at.timestamp())))
    decided(Kind.QUARANTINE, peer_id("bad"))


LOOKS = {
    "Hints": "Leases",
    "Ghosts and doubles": "Ghosts and doubles",
    "Crawls": "Crawls",
    "Replay": "Replay a check",
    "Incidents": "Incidents",
    "Quarantine": "Quarantined servers",
    "Importance": "Importance of models",
    "Audit": "Log entries",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_staff_logs_in_and_finds_what_needs_action(open_page: Open, scheme: str) -> None:
    """No complaint of the browser about the content policy, and nothing from another host (the fixture sees to that)."""
    in_a_thread(a_troubled_swarm)
    page = logged_in(open_page, color_scheme=scheme, **DESKTOP)
    expect(page.locator("#gaps tbody tr").first).to_contain_text("blocks 12–17")
    picture(page, f"admin-board-{scheme}")
    for link, heading in LOOKS.items():
        page.get_by_role("link", name=link).first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        picture(page, f"admin-{link.split()[0].lower()}-{scheme}")
    page.get_by_role("link", name="Hints").first.click()
    page.get_by_role("link", name="Explain").click()
    expect(page.locator("#ranking")).to_be_visible()
    picture(page, f"admin-explained-{scheme}")
    page.goto("/admin/replay/")
    page.locator("#replays tbody a").first.click()
    expect(page.locator("#replay")).to_contain_text("Replay: the minute of check")
    expect(page.locator("h1")).to_contain_text("cannot run")
    picture(page, f"admin-replayed-{scheme}")


def test_a_quarantine_is_made_from_the_list_of_ghosts(open_page: Open) -> None:
    in_a_thread(a_troubled_swarm)
    page = logged_in(open_page, **DESKTOP)
    page.get_by_role("link", name="Ghosts and doubles").first.click()
    page.locator(".ghosts").get_by_role("link", name="quarantine").click()
    page.get_by_label("Why, in words that everyone may read").fill("announces what it does not serve")
    page.locator("input[name=ends_at_0]").fill("2099-01-01")
    page.locator("input[name=ends_at_1]").fill("00:00:00")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("At most 30 days")).to_be_visible()
    picture(page, "admin-quarantine-refused")


def test_the_board_fits_a_phone(open_page: Open) -> None:
    in_a_thread(a_troubled_swarm)
    page = logged_in(open_page, **PHONE)
    picture(page, "admin-board-phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
