"""What the tests of the block server and its client share: tiny models on disk, and a client's peer on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from tests.blockserver.loopback import loopback_peer
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_thread_each() -> None:
    """Tiny models gain nothing from more, and servers of one test share the machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    """A Llama of six blocks: its folder, which no test may change, and the whole model."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return folder, save_tiny_model(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[P2P]:
    """A peer that serves nothing. Tests that use it run on their module's loop."""
    p2p = await loopback_peer(dht_mode="client")
    yield p2p
    await p2p.shutdown()
