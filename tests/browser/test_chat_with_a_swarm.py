"""The chat page, a real gateway, and a real server of a model that speaks: what is asked in the browser is answered there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.living_gateway import NUM_BLOCKS, living_gateway_beside
from tests.sites import running_site
from tests.speaking import save_speaking_model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = tmp_path_factory.mktemp("speaking") / "speaking"
    save_speaking_model(model)
    with living_gateway_beside(model, tmp_path_factory.mktemp("run")) as gateway:
        with running_site(SEPAL_GATEWAY_URL=gateway) as (address, _):
            yield address


PATIENCE_MS = 180_000
"""Servers, gateway and browser share one machine."""


def test_a_question_is_answered_by_the_swarm_and_the_lens_looks_into_every_block(open_page: Callable[..., Page]) -> None:
    page = open_page("/chat")
    expect(page.locator("main > .quiet").first).to_contain_text("speaking, served by volunteers")
    page.get_by_label("Your question").fill("Hello")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answered")).to_contain_text(f"(blocks 0–{NUM_BLOCKS - 1})", timeout=PATIENCE_MS)
    expect(page.locator(".answered")).to_contain_text("tok/s", timeout=PATIENCE_MS)
    assert page.locator(".turn.assistant .said").inner_text()
    page.get_by_role("button", name="Logit lens").click()
    expect(page.locator("#lens tbody tr")).to_have_count(NUM_BLOCKS + 1, timeout=PATIENCE_MS)
    expect(page.locator("#lens tbody tr").last).to_contain_text(str(NUM_BLOCKS - 1))
