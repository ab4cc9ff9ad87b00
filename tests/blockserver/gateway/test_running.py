"""The gateway's whole process against a real DHT: it finds its servers, sees them go, and outlives its p2pd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import openai
import psutil
import pytest
from transformers import PreTrainedModel

from blockserver import reporting
from blockserver.gateway import config as limits
from blockserver.gateway.running import listening
from swarm.errors import LocalError
from tests.blockserver.coordinators import Coordinator, coordinator
from tests.living_gateway import living_gateway

HELLO = [{"role": "user", "content": "Hello"}]
pytestmark = pytest.mark.slow


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """Who is told what the gateway saw of servers."""
    monkeypatch.setattr(reporting, "LAST_WORD_S", 30.0)  # a busy machine
    with coordinator() as told:
        told.answers["/api/v1/report"] = {"counted": 1}
        yield told


async def ready(client: httpx.AsyncClient, status: int) -> str:
    """The page's words as soon as it answers so: the DHT tells nobody of changes, so the gateway looks now and then."""
    while (answer := await client.get("/readyz")).status_code != status:
        pass
    return answer.text


async def test_a_gateway_finds_its_servers_and_says_when_they_are_gone(
    speaking: tuple[Path, PreTrainedModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Coordinator
) -> None:
    monkeypatch.setattr(limits, "LOOK_S", 0.1)
    async with (
        asyncio.timeout(120),
        living_gateway(speaking[0], tmp_path, coordinator=site.url) as gateway,
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
    ):
        asked = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=60)
        assert await ready(client, 200) == "[+]swarm ok\n[+]blocks ok\n"

        async def ask() -> str | None:
            answer = await asked.chat.completions.create(model="speaking", messages=HELLO, temperature=0, max_tokens=8)  # type: ignore[arg-type]
            return answer.choices[0].message.content

        said = await ask()
        p2pd = next(
            child for child in psutil.Process().children(recursive=True) if "p2pd" in child.name() and is_clients(child)
        )
        os.kill(p2pd.pid, signal.SIGKILL)
        assert "no connection" not in await ready(client, 200)
        while not p2pd_again(p2pd.pid):
            await ready(client, 200)
        assert await answered(ask) == said
        # What an answer missed while p2pd was away stands until the next look.
        assert await ready(client, 200) == "[+]swarm ok\n[+]blocks ok\n"

        gateway.leave.set()
        words = await ready(client, 503)
        assert "[-]blocks blocks 0–5 have no server since " in words and "see http://monitor.test/m/speaking" in words
        with pytest.raises(openai.InternalServerError, match="blocks 0–5 have no server since"):
            await ask()
    path, told = site.asked[0]
    assert path == "/api/v1/report" and told["model"] == "speaking" and told["canary"] is None
    assert [server["requests"] > server["failures"] for server in told["servers"]] == [True]


def is_clients(process: psutil.Process) -> bool:
    return any("dhtClient" in word for word in process.cmdline())


def p2pd_again(lost: int) -> bool:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # others come and go
            if "p2pd" in child.name() and child.pid != lost and is_clients(child):
                return True
    return False


async def answered(ask: object) -> str | None:
    """The first answer after a loss: until the new p2pd stands, there is none."""
    while True:
        try:
            return await ask()  # type: ignore[operator, no-any-return]
        except openai.InternalServerError:
            continue


def test_a_port_that_is_taken_is_said_before_anything_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalError, match=f"--port {port} on 127.0.0.1: Address already in use. Choose another"):
            with listening("127.0.0.1", port):
                pass
    with pytest.raises(LocalError, match=r"--host no\.such\.host\.invalid"):
        with listening("no.such.host.invalid", 0):
            pass
