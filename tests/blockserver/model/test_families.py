"""Every family that may be served: its spans, one after another, are its whole model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.embeddings import Ends, load_ends
from blockserver.compute.cache import SessionCache
from blockserver.model.blocks import SpanModule, load_span
from blockserver.model.families import FAMILIES, REFUSED, family_of
from blockserver.model.masks import NO_TOKEN
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests import tiny_models
from tests.tiny_models import BLOCKS, VOCABULARY, save_tiny_model

SPANS = (Span(0, 1), Span(1, 4), Span(4, BLOCKS))
NEW_TOKENS = 20
LENGTHS = (12, 7, 4)
IDS = torch.randint(3, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(1))
TOLERANCE = 1e-4
CACHED_TOKENS = 40


class Chain:
    """The whole model, and the same one cut in three."""

    def __init__(self, folder: Path, family: str) -> None:
        self.folder = folder
        self.whole: PreTrainedModel = save_tiny_model(folder, family)
        self.ends: Ends = load_ends(folder, torch.float32)
        self.modules: list[SpanModule] = [load_span(folder, span, torch.float32) for span in SPANS]

    def caches(self) -> list[SessionCache]:
        return [SessionCache(len(span), CACHED_TOKENS) for span in SPANS]

    def logits(self, ids: torch.Tensor, caches: Sequence[SessionCache | None]) -> torch.Tensor:
        """`[batch, vocabulary]` after the last of these tokens."""
        hidden = self.ends.embed(ids)
        for module, cache in zip(self.modules, caches, strict=True):
            hidden = module.forward(hidden, cache)
            if cache is not None:
                cache.advance(ids.shape[1])
        return self.ends.logits(hidden)


@pytest.fixture(scope="module", params=sorted({**tiny_models.FAMILIES, **tiny_models.VARIANTS}))
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain(tmp_path_factory.mktemp(str(request.param).replace("_", "-")), request.param)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=TOLERANCE * float(expected.abs().max()), rtol=0)


def test_every_family_that_may_be_served_is_compared_here() -> None:
    assert set(tiny_models.FAMILIES) == set(FAMILIES)


@torch.inference_mode()
def test_three_spans_chained_give_the_whole_models_logits(chain: Chain) -> None:
    """Prefilled in one chunk, in several and token by token, for one row and for three."""
    for ids in (IDS[:1], IDS):
        expected = chain.whole(ids).logits
        close(chain.logits(ids, [None] * len(SPANS)), expected[:, -1])
        for chunks in ((12,), (5, 1, 1, 3, 2), (1,) * 12):
            caches, start = chain.caches(), 0
            for length in chunks:
                actual = chain.logits(ids[:, start : start + length], caches)
                start += length
                close(actual, expected[:, start - 1])


@torch.inference_mode()
def test_hidden_states_at_every_boundary_are_the_whole_models(chain: Chain) -> None:
    """As transformers gives them: the last one after the final norm. Embeddings given by the caller enter likewise."""
    expected = chain.whole(IDS, output_hidden_states=True)
    hidden = chain.ends.enter(chain.whole.get_input_embeddings()(IDS))
    boundaries = [hidden]
    for module in chain.modules:
        for block in module.span:
            hidden = module.part(Span(block, block + 1)).forward(hidden)
            boundaries.append(hidden)
    assert len(expected.hidden_states) == len(boundaries) == BLOCKS + 1
    for actual, state in zip([*boundaries[:-1], chain.ends.normed(hidden)], expected.hidden_states, strict=True):
        close(actual, state)
    close(chain.ends.head(hidden), expected.logits)


@torch.inference_mode()
def test_they_say_the_same_twenty_tokens(chain: Chain) -> None:
    whole = chain.whole.generate(IDS, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    caches, ids = chain.caches(), IDS
    said = []
    for _ in range(NEW_TOKENS):
        ids = chain.logits(ids, caches).argmax(-1, keepdim=True)
        said.append(ids)
    assert torch.cat(said, dim=1).tolist() == whole[:, IDS.shape[1] :].tolist()


NEXT_IDS = torch.tensor([[5], [6], [7]])


@torch.inference_mode()
def test_rows_of_unequal_length_are_each_as_if_alone(chain: Chain) -> None:
    """As rows at positions of their own where the family can; as sessions of their own where it says that it cannot."""
    if chain.modules[0].can_step_rows:
        actual = _as_one_batch(chain)
    else:
        actual = torch.cat([_alone(chain, row) for row in range(len(LENGTHS))])
    for row, length in enumerate(LENGTHS):
        ids = torch.cat([IDS[row : row + 1, -length:], NEXT_IDS[row : row + 1]], dim=1)
        close(actual[row : row + 1], chain.whole(ids).logits[:, -1])


def _as_one_batch(chain: Chain) -> torch.Tensor:
    """Short rows begin with padding; then all go on by one token."""
    longest = max(LENGTHS)
    positions = torch.tensor([[NO_TOKEN] * (longest - length) + list(range(length + 1)) for length in LENGTHS])
    caches = chain.caches()
    for start, end, ids in ((0, longest, IDS), (longest, longest + 1, NEXT_IDS)):
        hidden, queries = chain.ends.embed(ids), positions[:, start:end].clamp(min=0)
        for module, cache in zip(chain.modules, caches, strict=True):
            masks = module.row_masks(queries, positions[:, :end])
            hidden = module.forward(hidden, cache, attention_mask=masks, position_ids=queries)
            cache.advance(end - start)
    return chain.ends.logits(hidden)


def _alone(chain: Chain, row: int) -> torch.Tensor:
    caches = chain.caches()
    chain.logits(IDS[row : row + 1, -LENGTHS[row] :], caches)
    return chain.logits(NEXT_IDS[row : row + 1], caches)


def test_only_these_need_their_rows_in_step(chain: Chain, request: pytest.FixtureRequest) -> None:
    """So that a family does not lose continuous batching unseen."""
    family = request.node.callspec.params["chain"]
    assert chain.modules[0].can_step_rows == (family not in {"bloom", "falcon-alibi", "llama4_text"})


@torch.inference_mode()
def test_a_part_of_a_span_is_the_span_of_those_blocks(chain: Chain) -> None:
    """Also with a session's cache, in which the part's first block is not the cache's first."""
    part, own = chain.modules[1].part(Span(2, 4)), load_span(chain.folder, Span(2, 4), torch.float32)
    hidden = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(2))
    part_cache, own_cache = SessionCache(len(SPANS[1]), 9), SessionCache(2, 9)
    for chunk in (hidden[:, :6], hidden[:, 6:7], hidden[:, 7:]):
        torch.testing.assert_close(part.forward(chunk, part_cache), own.forward(chunk, own_cache))
        part_cache.advance(chunk.shape[1])
        own_cache.advance(chunk.shape[1])


@torch.inference_mode()
def test_facts_say_what_a_cached_token_costs(chain: Chain) -> None:
    caches, facts = chain.caches(), chain.modules[0].facts
    chain.logits(IDS[:1], caches)
    kept = [
        sum(tensor.shape[1] * tensor.shape[3] * tensor.itemsize for tensor in (layer.keys, layer.values))
        for cache in caches
        for layer in cache.layers
    ]
    assert max(kept) == facts.cache_bytes_per_token(torch.float32)


def test_the_list_for_people_names_the_same_families() -> None:
    text = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
    listed, _, refused = text.partition("Not served")
    assert set(re.findall(r"`([a-z0-9_]+)`", listed)) == set(FAMILIES)
    assert set(REFUSED) <= set(re.findall(r"`([a-z0-9_]+)`", refused))


def test_what_is_not_served_says_why() -> None:
    assert "qwen3_next" in REFUSED and not set(REFUSED) & set(FAMILIES)
    for name, reason in REFUSED.items():
        with pytest.raises(LocalError, match=f"'{name}' cannot be served: {reason[:20]}"):
            family_of(name)
    with pytest.raises(LocalError, match="nobody has compared"):
        family_of("brand_new")
