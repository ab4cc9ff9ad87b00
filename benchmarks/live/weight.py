"""The page of 126 blocks and 466 servers, beside what health.petals.dev's own template makes of as many."""

from __future__ import annotations

import gzip
import time
from typing import Any

from benchmarks.live.site import chromium, database, web

THEIRS = {"html_kb": 1_684.0, "html_gzip_kb": 37.0, "elements": 66_264, "width_px": 1_859, "height_px": 9_340}
"""Measured with 466 made-up servers and its own template; it is reloaded by hand."""
MEASURE = """() => ({
  elements: document.querySelectorAll("*").length, width: document.documentElement.scrollWidth,
  height: document.documentElement.scrollHeight,
  transferred: performance.getEntriesByType("resource").reduce((sum, one) => sum + one.transferSize,
    performance.getEntriesByType("navigation")[0].transferSize) })"""


def measure() -> dict[str, Any]:
    with database():
        from django.test import Client

        from tests.showcase import LARGE, seed_all

        seed_all(time.time())
        begun = time.perf_counter()
        client = Client(headers={"host": "127.0.0.1"})
        html = client.get(f"/m/{LARGE}").content
        first_s = time.perf_counter() - begun
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            client.get(f"/m/{LARGE}")
            times.append(time.perf_counter() - begun)
        with web() as (address, _), chromium() as browser:
            page = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900}).new_page()
            page.goto(f"/m/{LARGE}", wait_until="networkidle")
            seen = page.evaluate(MEASURE)
    return {
        "ours_html_kb": len(html) / 1000,
        "theirs_html_kb": THEIRS["html_kb"],
        "ours_html_gzip_kb": len(gzip.compress(html)) / 1000,
        "theirs_html_gzip_kb": THEIRS["html_gzip_kb"],
        "ours_first_view_transferred_kb": seen["transferred"] / 1000,
        "ours_elements": seen["elements"],
        "theirs_elements": THEIRS["elements"],
        "ours_page_px": f"{seen['width']} x {seen['height']}",
        "theirs_page_px": f"{THEIRS['width_px']} x {THEIRS['height_px']}",
        "ours_first_render_s": first_s,
        "ours_render_s": min(times),
    }
