"""The incident pages in a real browser: narrow and wide, light and dark, nothing to scroll sideways, nothing refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.history.models import Incident
from tests.monitor.seeding import NOW, online, seed, unreachable
from tests.swarms import model

pytestmark = [pytest.mark.slow, pytest.mark.browser]

Open = Callable[..., Page]
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def hole(transactional_db: None) -> Incident:
    whole = model(30, online("a", 0, 30), online("b", 0, 30))
    torn = model(30, unreachable("a", 0, 30), online("b", 0, 20))
    for after, look in ((0, whole), (30, torn), (60, torn), (90, whole)):
        seed(look, at=NOW + after)
    rollups.roll_up(moment(NOW + 90))
    return Incident.objects.get(kind="hole")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375, 320])
def test_incidents_fit_every_screen(open_page: Open, hole: Incident, scheme: str, width: int) -> None:
    for path in ("/incidents", f"/incidents/{hole.pk}", "/m/tiny-hf", "/"):
        page = open_page(path, viewport={"width": width, "height": 800}, color_scheme=scheme)
        assert page.evaluate(SIDEWAYS) == 0, path


def test_from_the_list_to_the_incident_and_to_its_model_without_scripts(open_page: Open, hole: Incident) -> None:
    page = open_page("/incidents", java_script_enabled=False)
    page.get_by_role("link", name="tiny-hf: blocks 20–29 had no server").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("tiny-hf: blocks 20–29 had no server")
    expect(page.get_by_role("table")).to_contain_text("stopped answering")
    page.get_by_role("link", name="tiny-hf", exact=True).click()
    expect(page.get_by_role("heading", name="Last 90 days")).to_be_visible()
