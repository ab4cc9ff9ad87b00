"""Loading tells how far it is, and a move to an overlapping span reads only what is new."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.compute.cache import SessionCache
from blockserver.model.blocks import load_span
from blockserver.model.model_source import facts_of, load
from blockserver.model.progress import Meter, shown
from swarm.wire.spans import Span
from tests.tiny_models import save_tiny_model

FAMILIES = ["bloom", "deepseek_v3", "gemma3_text", "llama4_text", "qwen3_moe", "smollm3"]
"""Those whose layers depend most on their number."""


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    save_tiny_model(tmp_path / "model", request.param)
    return tmp_path / "model"


@pytest.mark.parametrize("span", [Span(0, 3), Span(3, 6), Span(2, 4), Span(0, 6)])
def test_a_move_keeps_the_blocks_that_are_there(folder: Path, span: Span) -> None:
    before = load_span(folder, Span(1, 5), torch.float32)
    layers = dict(zip(before.span, before.layers, strict=True))
    read: list[int] = []
    after = load_span(folder, span, torch.float32, reuse=before, progress=lambda done, *_: read.append(done))
    for block, layer in zip(span, after.layers, strict=True):
        assert (layer is layers.get(block)) == (block in Span(1, 5))
    assert len(read) == 1 + sum(block not in Span(1, 5) for block in span)
    hidden = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2))
    fresh, caches = load_span(folder, span, torch.float32), [SessionCache(len(span), 9) for _ in range(2)]
    with torch.inference_mode():
        for chunk in (hidden[:, :6], hidden[:, 6:]):
            torch.testing.assert_close(after.forward(chunk, caches[0]), fresh.forward(chunk, caches[1]))
            for cache in caches:
                cache.advance(chunk.shape[1])


def test_blocks_in_another_form_are_not_kept(tiny: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    before = load_span(tiny[0], Span(0, 2), torch.bfloat16)
    after = load_span(tiny[0], Span(0, 2), torch.float32, reuse=before)
    assert not set(after.layers) & set(before.layers)
    save_tiny_model(tmp_path / "other")
    other = load_span(tmp_path / "other", Span(0, 2), torch.bfloat16, reuse=before)
    assert not set(other.layers) & set(before.layers)


def test_progress_counts_the_bytes_of_the_span(tiny: tuple[Path, PreTrainedModel]) -> None:
    seen: list[tuple[int, int, float]] = []
    load(tiny[0], Span(1, 3), torch.float32, progress=lambda *figures: seen.append(figures))
    each = facts_of(tiny[0]).bytes_per_block(torch.float32)
    assert [(done, total) for done, total, _ in seen] == [(0, 2 * each), (each, 2 * each), (2 * each, 2 * each)]


def test_the_total_is_never_less_than_what_is_done() -> None:
    seen: list[tuple[int, int, float]] = []
    ticks = iter(range(10))
    meter = Meter(lambda *figures: seen.append(figures), clock=lambda: float(next(ticks)))
    meter.expect(10)
    meter.add(15)
    assert seen == [(0, 10, 1.0), (15, 15, 2.0)]


def test_without_a_terminal_there_are_plain_lines_and_few_of_them() -> None:
    stream = io.StringIO()
    with shown("loading blocks 0 to 9", stream) as progress:
        for second in range(13):
            progress(second * 50_000_000, 600_000_000, float(second))
    assert stream.getvalue().splitlines() == [
        "loading blocks 0 to 9: 250.0 of 600.0 MB (42%), 50.0 MB/s, 7 s left",
        "loading blocks 0 to 9: 500.0 of 600.0 MB (83%), 50.0 MB/s, 2 s left",
        "loading blocks 0 to 9: 600.0 of 600.0 MB (100%), 50.0 MB/s",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_bar_with_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with shown("loading", stream) as progress:
        progress(0, 600_000_000, 0.0)
        progress(300_000_000, 600_000_000, 1.0)
    text = stream.getvalue()
    assert "loading" in text and "300.0/600.0 MB" in text and "\x1b[" in text


def test_facts_of_two_folders_differ(tiny: tuple[Path, PreTrainedModel]) -> None:
    """Reuse rests on it."""
    facts = facts_of(tiny[0])
    assert facts == facts_of(tiny[0]) != replace(facts, folder=Path("elsewhere"))
