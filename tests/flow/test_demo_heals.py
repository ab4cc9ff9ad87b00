"""The main job, whole: a real swarm serves, is watched, loses a server, and heals: on the page, in the API, for a client."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import websockets
from openai import AsyncOpenAI
from playwright.async_api import Page, async_playwright, expect
from transformers import AutoModelForCausalLM
from websockets.typing import Origin

from blockserver.canary.run import CanaryConfig, run_canary
from blockserver.client.chat import Answer, ChatConfig, ask, encode_question, load_tokenizer
from blockserver.client.sampling import Sampling
from blockserver.serving.identity import read_signer
from swarm.dht.node import make_identity
from tests.flow.conftest import RunningDemo
from tests.flow.following import PATIENCE_S, OpenPage

pytestmark = [pytest.mark.slow, pytest.mark.browser]

QUESTION = "What is the capital of France?"
PREFIX = "SmolLM2-135M-Instruct"


@pytest.fixture(autouse=True)
def canary_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key of the operator's canary, which the site trusts from its start on."""
    key = tmp_path / "canary.id"
    make_identity(key)
    monkeypatch.setenv("SEPAL_TRUSTED_REPORTERS", read_signer(key).peer_id)
    return key


async def chat(demo: RunningDemo, model: Path) -> Answer:
    config = ChatConfig(model, (demo.bootstrap,), sampling=Sampling(max_new_tokens=24))
    return await ask(config, QUESTION, lambda text: None)


async def through_the_gateway(demo: RunningDemo) -> str | None:
    """What OpenAI's own package gets, as the demo's banner tells people to try."""
    async with AsyncOpenAI(base_url=f"{demo.gateway}/v1", api_key="none", timeout=120) as client:
        question: Any = [{"role": "user", "content": QUESTION}]
        answer = await client.chat.completions.create(model=PREFIX, messages=question, temperature=0, max_tokens=24)
        return answer.choices[0].message.content


def local_tokens(model: Path) -> list[int]:
    prompt = encode_question(load_tokenizer(model), QUESTION)
    whole = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    generated = whole.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)
    tokens: list[int] = generated[0, len(prompt) :].tolist()
    return tokens


@asynccontextmanager
async def open_page(url: str, **options: Any) -> AsyncIterator[Page]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    assert executable, "Debian's chromium is needed: apt-get install chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = await browser.new_page(**options)
        await page.goto(url)
        yield page
        await browser.close()


def heard_later(address: str, origin: str) -> websockets.connect:
    """Whatever comes while the test does something else is kept, and nobody takes its silence for an end."""
    return websockets.connect(address, origin=Origin(origin), ping_interval=None, max_queue=None)


def runs(page: OpenPage) -> bool:
    return " runs" in page.heading


def cannot_run(page: OpenPage) -> bool:
    return "cannot run" in page.heading and "no server" in page.heading


async def item(demo: RunningDemo) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60) as http:
        (only,) = (await http.get(f"{demo.site}/api/v1/models")).json()["items"]
        return dict(only)


async def measured(demo: RunningDemo, followed: OpenPage) -> None:
    """The crawl worker sends servers a small forward pass each, and what they really give stands beside what they report."""
    async with asyncio.timeout(PATIENCE_S):
        while not [server for server in (await item(demo))["servers"] if server["measured_tokens_per_second"]]:
            await followed.hear()


async def test_the_swarm_serves_is_watched_loses_a_server_and_heals(
    canary_key: Path, demo: RunningDemo, demo_model: Path
) -> None:
    expected = local_tokens(demo_model)
    chosen = [line for line in demo.output if "decided by" in line]
    assert len(chosen) == 4, "each server prints why it chose its span"

    address = demo.site.replace("http", "ws") + f"/ws/m/{PREFIX}"
    page_url = f"{demo.site}/m/{PREFIX}"
    async with heard_later(address, demo.site) as socket, open_page(page_url) as page:
        followed = OpenPage(socket, page_url)
        await followed.load()
        await followed.until(runs)
        heading = page.get_by_role("heading", level=1)
        await expect(heading).to_contain_text("runs", timeout=PATIENCE_S * 1000)
        await page.evaluate("window.openedOnce = true")
        before = await chat(demo, demo_model)
        assert list(before.tokens) == expected
        assert await through_the_gateway(demo) == before.text
        async with httpx.AsyncClient(timeout=60) as http:
            assert "served by volunteers" in (await http.get(f"{demo.site}/chat")).text

        with demo.nobody_asked_to_move():
            # Held up, since a hole may be mended before the next push, and then no page ever shows it.
            said = await asyncio.to_thread(demo.kill_one_server)
            assert "can move there" in said
            await followed.until(cannot_run)
            await expect(heading).to_contain_text("cannot run", timeout=PATIENCE_S * 1000)

        await followed.until(lambda page: "Hints given" in page.html)
        await followed.until(runs)
        await expect(heading).to_contain_text("runs", timeout=PATIENCE_S * 1000)
        assert await page.evaluate("window.openedOnce"), "the page was never reloaded"

        after = await chat(demo, demo_model)
        assert list(after.tokens) == expected
        await measured(demo, followed)

        right = load_tokenizer(demo_model).decode(expected[:3])
        canary = CanaryConfig(demo_model, (demo.bootstrap,), demo.site, canary_key, question=QUESTION, answer=right)
        assert await run_canary(canary, asyncio.Event(), once=True)
        await followed.until(lambda page: "Canary: answered as expected" in page.html)

    healed = await item(demo)
    assert healed["holes"] == []
    repairs = [lease for lease in healed["leases"] if lease["urgency"] == "hole" and lease["from"]]
    assert {lease["phase"] for lease in repairs} <= {"accepted", "done"}
    assert len(repairs) == 1, "one server moved, and one only"

    async with open_page(page_url, java_script_enabled=False) as page:
        await expect(page.get_by_role("heading", level=1)).to_contain_text("runs", timeout=PATIENCE_S * 1000)
