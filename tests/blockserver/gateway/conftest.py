"""A gateway on a real port, in front of real servers on loopback that serve a tiny model; OpenAI's own package asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from openai import AsyncOpenAI
from transformers import PreTrainedModel

from blockserver.client.model import RemoteModel
from blockserver.client.session import Patience
from blockserver.gateway.answering import Studio
from blockserver.gateway.app import Gateway
from blockserver.gateway.metrics import Metrics
from blockserver.gateway.running import address_of, listening, serve_http
from blockserver.gateway.sight import Sight
from blockserver.gateway.turns import Turns
from blockserver.gateway.voice import Voice
from swarm.wire.spans import Span
from tests.blockserver.loopback import KnownServers, Serving, candidate, serving
from tests.speaking import save_speaking_model

PREFIX = "speaking"
NAME = "speaking"
MONITOR = "http://monitor.test/m/speaking"


@dataclass
class Running:
    """A gateway for a test, and all that is behind it."""

    url: str
    studio: Studio
    known: KnownServers
    whole: PreTrainedModel
    stop: asyncio.Event

    @property
    def voice(self) -> Voice:
        return self.studio.voice

    def client(self, **options: Any) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", **{"api_key": "none", "max_retries": 0, "timeout": 60, **options})

    def local_text(self, messages: list[dict[str, str]], count: int) -> str:
        """What the whole model says, greedily."""
        ids = self.voice.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        return self.voice.decode(self.local_tokens(ids, count))

    def local_tokens(self, prompt: Sequence[int], count: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            for _ in range(count):
                ids = torch.cat([ids, self.whole(ids).logits[:, -1:].argmax(-1)], dim=1)
        tokens: list[int] = ids[0, len(prompt) :].tolist()
        return tokens


@pytest.fixture(scope="session")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    folder = tmp_path_factory.mktemp("speaking") / NAME
    return folder, save_speaking_model(folder)


@asynccontextmanager
async def gateway(
    speaking: tuple[Path, PreTrainedModel],
    client: P2P,
    servers: Sequence[Serving],
    turns: Turns | None = None,
    quiet_s: float = 14.0,
    wait_s: float = 30.0,
    **options: Any,
) -> AsyncIterator[Running]:
    folder, whole = speaking
    known = KnownServers([candidate(server, 100.0 / (1 + place)) for place, server in enumerate(servers)])
    model = RemoteModel.load(
        folder, client, known.find_route, prefix=PREFIX, dtype=torch.float32, patience=Patience(4, 0.01, 0.05)
    )
    model.stop_ids = frozenset()
    sight = Sight(MONITOR)
    studio = Studio(Voice.of(folder, model, 4_096), turns or Turns(16, 64, 8), sight, Metrics(), quiet_s=quiet_s, wait_s=wait_s)
    stop = asyncio.Event()
    with listening("127.0.0.1", 0) as listener:
        app = Gateway(studio, **options).app()
        task = asyncio.create_task(serve_http(app, listener, stop, studio))
        try:
            yield Running(address_of(listener), studio, known, whole, stop)
        finally:
            stop.set()
            await asyncio.wait_for(task, 60)
            model.close()
            studio.voice.close()


@asynccontextmanager
async def three_servers(folder: Path, client: P2P) -> AsyncIterator[list[Serving]]:
    """Blocks 0:3, then 3:6 twice; the first of the twins is the faster one."""
    async with AsyncExitStack() as stack:
        spans = (Span(0, 3), Span(3, 6), Span(3, 6))
        yield [await stack.enter_async_context(serving(folder, span, PREFIX, client)) for span in spans]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(speaking: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """Servers that no test may harm."""
    async with three_servers(speaking[0], client) as servers:
        yield servers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(speaking: tuple[Path, PreTrainedModel], client: P2P, lasting: list[Serving]) -> AsyncIterator[Running]:
    async with gateway(speaking, client, lasting) as started:
        yield started
