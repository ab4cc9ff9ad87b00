"""The chat page in a real browser, in front of a gateway of a few lines: words as they come, and the same without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.cache import cache
from playwright.sync_api import Page, expect

from tests.fake_gateway import HOLE, FakeGateway, fake_gateway
from tests.sites import running_site
from tests.swarms import peer_id

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]

Open = Callable[..., Page]
AXE = Path(__file__).with_name("vendor") / "axe.min.js"
QUESTION = "What is the capital of France?"
ANSWER = "The capital is\nParis 🌸 <b>"


@pytest.fixture(scope="module")
def gateway_of_the_module() -> Iterator[FakeGateway]:
    with fake_gateway() as fake:
        yield fake


@pytest.fixture(scope="module")
def site(django_db_setup: None, gateway_of_the_module: FakeGateway) -> Iterator[str]:
    """In the place of the site that the other modules share: this one has a gateway."""
    with running_site(SEPAL_GATEWAY_URL=gateway_of_the_module.url) as (address, _):
        yield address


@pytest.fixture
def gateway(gateway_of_the_module: FakeGateway) -> FakeGateway:
    fake = gateway_of_the_module
    fake.why_not, fake.refusal, fake.breaks_off = None, None, ""
    fake.go_on.set()
    fake.left.clear()
    fake.asked.clear()
    forget_counts()
    return fake


def forget_counts() -> None:
    """How often this address has asked: each test begins anew."""
    redis = cache._cache.get_client(write=True)  # type: ignore[attr-defined]
    for key in redis.scan_iter("*limit.*"):
        redis.delete(key)


def ask(page: Page, question: str = QUESTION) -> None:
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Send").click()


def test_words_appear_as_they_come_then_who_gave_them(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/")
    page.get_by_role("link", name="Chat").click()
    loaded = page.evaluate("performance.timeOrigin")
    gateway.go_on.clear()
    ask(page)
    said = page.locator(".turn.assistant .said")
    expect(said).to_have_text("The ")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    gateway.go_on.set()
    expect(said).to_have_text(ANSWER)
    expect(page.locator(".answered")).to_contain_text("Answered by")
    expect(page.locator(".answered")).to_contain_text("12.3 tok/s · 1 server was replaced on the way")
    expect(page.locator(f".answered a[href='/p/{peer_id('a')}']")).to_have_text(f"…{peer_id('a')[-6:]}")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.get_by_label("Your question").fill("And of Spain?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant")).to_have_count(2)
    expect(page.locator(".answered").nth(1)).to_contain_text("tok/s")
    assert [turn["content"] for turn in gateway.asked[1]["messages"]] == [QUESTION, ANSWER, "And of Spain?"]
    assert page.evaluate("performance.timeOrigin") == loaded
    assert page.locator(".said b").count() == 0


def test_whoever_stops_frees_the_servers_and_keeps_what_was_said(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/chat")
    gateway.go_on.clear()
    ask(page)
    expect(page.locator(".turn.assistant .said")).to_have_text("The ")
    page.get_by_role("button", name="Stop").click()
    assert gateway.left.wait(60)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    expect(page.locator(".turn.assistant .said")).to_have_text("The ")


def test_a_page_that_is_closed_frees_the_servers(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/chat")
    gateway.go_on.clear()
    ask(page)
    expect(page.locator(".turn.assistant .said")).to_have_text("The ")
    page.close()
    assert gateway.left.wait(60)


def test_why_there_is_no_answer_is_said_and_the_question_can_be_sent_again(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/chat")
    gateway.refusal = (503, {"message": HOLE, "code": "swarm_incomplete"})
    ask(page)
    expect(page.locator("#chat-why-not")).to_contain_text("block 88 has no server since 14:02 UTC")
    expect(page.get_by_label("Your question")).to_have_value(QUESTION)
    expect(page.locator(".turn")).to_have_count(0)
    gateway.refusal = None
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn.assistant .said")).to_have_text(ANSWER)
    expect(page.locator("#chat-why-not")).to_be_hidden()


def test_an_answer_that_breaks_off_says_so_and_stays(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/chat")
    gateway.breaks_off = "silently"
    ask(page)
    expect(page.locator("#chat-why-not")).to_contain_text("broke off in the middle")
    expect(page.locator(".turn.assistant .said")).to_have_text("The capital")


def test_the_same_without_javascript(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/chat", java_script_enabled=False)
    ask(page)
    expect(page.locator(".turn.assistant .said")).to_have_text(ANSWER)
    expect(page.locator(".answered")).to_contain_text("12.3 tok/s")
    ask(page, "And of Spain?")
    expect(page.locator(".turn")).to_have_count(4)
    page.get_by_role("button", name="Logit lens").click()
    expect(page.locator("#lens tbody tr")).to_have_count(2)
    expect(page.locator("#lens")).to_contain_text("And of Spain?")
    expect(page.locator(".turn")).to_have_count(4)


def test_the_lens_after_a_streamed_answer_keeps_the_conversation(open_page: Open, gateway: FakeGateway) -> None:
    page = open_page("/chat")
    ask(page)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    expect(page.locator(".answered")).to_contain_text("tok/s")
    page.get_by_role("button", name="Logit lens").click()
    expect(page.locator("#lens tbody tr").nth(1)).to_contain_text("␣Paris")
    expect(page.locator(".turn.assistant .said")).to_have_text(ANSWER)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 375), ("dark", 320)])
def test_it_fits_and_axe_finds_nothing(open_page: Open, gateway: FakeGateway, scheme: str, width: int) -> None:
    page = open_page("/chat", color_scheme=scheme, viewport={"width": width, "height": 800}, is_mobile=width < 600)
    ask(page)
    expect(page.locator(".answered")).to_contain_text("tok/s")
    fine(page, width)
    page.get_by_role("button", name="Logit lens").click()
    expect(page.locator("#lens tbody tr")).to_have_count(2)
    fine(page, width)
    gateway.why_not = HOLE
    page.goto("/chat")
    fine(page, width)


def fine(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']})")
    assert [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in found["violations"]] == []
