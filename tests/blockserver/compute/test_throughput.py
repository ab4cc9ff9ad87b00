"""What a server announces of its speed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.compute.engine import Engine
from blockserver.compute.throughput import Throughput, measure
from blockserver.model.blocks import load_span
from swarm.errors import LocalError
from swarm.wire.spans import Span


@pytest.mark.parametrize(
    ("network_rps", "relay", "expected"),
    [(None, False, 200.0), (None, True, 200.0), (1000.0, False, 200.0), (50.0, False, 50.0), (500.0, True, 100.0)],
)
def test_the_announced_figure_is_the_slower_of_computing_and_sending(
    network_rps: float | None, relay: bool, expected: float
) -> None:
    """900 block-tokens a second over 8 blocks: a request entering anywhere uses 4.5 of them."""
    assert Throughput(70.0, 900.0, network_rps).announced(blocks=8, relay=relay) == expected


async def test_the_span_itself_is_measured_and_nothing_is_left_behind(
    tiny: tuple[Path, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blockserver.compute.throughput.PHASE_S", 0.02)
    engine = Engine(load_span(tiny[0], Span(0, 3), torch.float32), 100)
    measured = await measure(engine, network_rps=10.0)
    # One token at a time reads the weights for each; many at once do not.
    assert 0.0 < measured.inference_rps < measured.forward_rps
    assert measured.network_rps == 10.0
    assert engine.cache_tokens_left == 2 * 3 * 100
    with pytest.raises(LocalError, match="positive"):
        await measure(engine, network_rps=0.0)
    engine.stop()
