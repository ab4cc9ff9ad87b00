"""A swarm of three real servers on loopback, on a thread of its own, for tests of the synchronous client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from blockserver import AutoDistributedModelForCausalLM
from tests.blockserver.client.threaded import Swarm, swarm


@pytest.fixture(scope="session")
def threaded(tiny: tuple[Path, PreTrainedModel]) -> Iterator[Swarm]:
    """Blocks 0:2, 2:4 and 4:6 of the tiny Llama. No test may harm it."""
    with swarm(tiny[0], 2, 4) as running:
        yield running


@pytest.fixture(scope="session")
def distributed(tiny: tuple[Path, PreTrainedModel], threaded: Swarm) -> Iterator[PreTrainedModel]:
    """The tiny Llama over that swarm, found by its DHT. No test may leave it changed."""
    with AutoDistributedModelForCausalLM.from_pretrained(
        tiny[0], initial_peers=threaded.addresses, dtype="float32", dht_prefix=threaded.prefix
    ) as model:
        yield model
