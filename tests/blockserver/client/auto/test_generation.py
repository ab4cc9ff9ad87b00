"""`generate` over a swarm gives what transformers gives locally, for every way of choosing tokens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationMixin, PreTrainedModel, TextIteratorStreamer, pipeline

from blockserver.client.auto.cache import RemoteCache
from blockserver.client.auto.causal_lm import DistributedCausalLM
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.blockserver.client.threaded import handlers
from tests.blockserver.client.words import word_tokenizer
from tests.tiny_models import save_tiny_model

IDS = torch.tensor([[5, 17, 42, 8], [9, 3, 33, 71]])
PADDED = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
TEN: dict[str, Any] = {"max_new_tokens": 10, "eos_token_id": None, "pad_token_id": 0}
GREEDY = {**TEN, "do_sample": False}

Whole = tuple[Path, PreTrainedModel]


def same(distributed: DistributedCausalLM, whole: PreTrainedModel, ids: torch.Tensor, **how: Any) -> None:
    torch.manual_seed(7)
    expected = whole.generate(ids, **how)
    torch.manual_seed(7)
    actual = distributed.generate(ids, **how)
    assert actual.tolist() == expected.tolist()


def test_it_is_a_transformers_model(distributed: DistributedCausalLM, tiny: Whole) -> None:
    assert isinstance(distributed, PreTrainedModel) and isinstance(distributed, GenerationMixin)
    assert type(distributed).__name__ == type(tiny[1]).__name__
    assert distributed.config.num_hidden_layers == 6
    assert sum(weight.numel() for weight in distributed.parameters()) < sum(w.numel() for w in tiny[1].parameters()) / 2


@pytest.mark.parametrize(
    "how",
    [
        GREEDY,
        {**GREEDY, "use_cache": False},
        {**GREEDY, "prefill_chunk_size": 3},
        {**GREEDY, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {**GREEDY, "num_beams": 4},
        {**GREEDY, "num_beams": 4, "num_return_sequences": 3, "length_penalty": 2.0},
        {**GREEDY, "num_beams": 3, "eos_token_id": 29, "early_stopping": True},
        {**TEN, "do_sample": True, "temperature": 1.3, "top_k": 20, "top_p": 0.9, "num_return_sequences": 2},
        {**TEN, "do_sample": True, "num_beams": 3},
        {**GREEDY, "eos_token_id": list(range(3, 40))},
    ],
    ids=lambda how: "-".join(f"{key}={value}"[:16] for key, value in how.items() if key not in GREEDY) or "greedy",
)
def test_the_tokens_are_the_local_ones(how: dict[str, Any], distributed: DistributedCausalLM, tiny: Whole) -> None:
    same(distributed, tiny[1], IDS, **how)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_padded_batch_is_answered_row_by_row_as_if_alone(beams: int, distributed: DistributedCausalLM, tiny: Whole) -> None:
    same(distributed, tiny[1], IDS, attention_mask=PADDED, num_beams=beams, **GREEDY)
    padded = distributed.generate(IDS, attention_mask=PADDED, num_beams=beams, **GREEDY)
    alone = distributed.generate(IDS[:1, 2:], num_beams=beams, **GREEDY)
    assert padded[0, 4:].tolist() == alone[0, 2:].tolist()


def test_a_padded_batch_goes_as_two_sessions_with_room_for_what_they_hold(
    distributed: DistributedCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    lane = distributed.blocks.lane
    monkeypatch.setattr(distributed.blocks, "lane", lambda length, parts: opened.append(length) or lane(length, parts))
    distributed.generate(torch.cat([IDS, IDS[:1]]), attention_mask=torch.cat([PADDED, PADDED[:1]]), **GREEDY)
    assert len(opened) == 2 and opened[0] - opened[1] == 2


def test_drafts_by_prompt_lookup_change_nothing_but_the_number_of_steps(
    distributed: DistributedCausalLM, tiny: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    walk = RemoteCache.walk

    def counted(cache: RemoteCache, hidden: torch.Tensor, *rest: Any) -> Any:
        steps.append(hidden.shape[1])
        return walk(cache, hidden, *rest)

    monkeypatch.setattr(RemoteCache, "walk", counted)
    repeating = torch.cat([tiny[1].generate(IDS[:1], **{**GREEDY, "max_new_tokens": 30})] * 2, dim=1)
    same(distributed, tiny[1], repeating, **{**GREEDY, "max_new_tokens": 20}, prompt_lookup_num_tokens=4)
    assert max(steps[1:]) > 1 and len(steps) < 20


def test_a_small_local_model_may_draft(distributed: DistributedCausalLM, tiny: Whole, tmp_path: Path) -> None:
    drafting = save_tiny_model(tmp_path, "qwen2")
    same(distributed, tiny[1], IDS[:1], **GREEDY, assistant_model=drafting)


def test_embeddings_may_be_given_in_place_of_tokens(distributed: DistributedCausalLM, tiny: Whole) -> None:
    embeds = tiny[1].get_input_embeddings()(IDS)
    expected = tiny[1].generate(inputs_embeds=embeds, **GREEDY)
    assert distributed.generate(inputs_embeds=embeds, **GREEDY).tolist() == expected.tolist()


def test_scores_and_hidden_states_of_each_step_come_along(distributed: DistributedCausalLM, tiny: Whole) -> None:
    how = {**GREEDY, "return_dict_in_generate": True, "output_logits": True, "output_hidden_states": True}
    actual, expected = (model.generate(IDS, attention_mask=PADDED, **how) for model in (distributed, tiny[1]))
    assert actual.sequences.tolist() == expected.sequences.tolist()
    torch.testing.assert_close(torch.stack(actual.logits), torch.stack(expected.logits), atol=1e-4, rtol=0)
    assert len(actual.hidden_states) == 10 and len(actual.hidden_states[0]) == 7
    for step in (0, 1, 9):
        for state, known in zip(actual.hidden_states[step], expected.hidden_states[step], strict=True):
            torch.testing.assert_close(state[:, -2:], known[:, -2:], atol=1e-4, rtol=0)


def test_a_streamer_gets_text_while_it_is_made(distributed: DistributedCausalLM, tiny: Whole) -> None:
    tokenizer = word_tokenizer()
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60.0)
    how = {"input_ids": IDS[:1], "streamer": streamer, **GREEDY}
    thread = threading.Thread(target=distributed.generate, kwargs=how)
    thread.start()
    pieces = list(streamer)
    thread.join()
    assert "".join(pieces).split() == tokenizer.decode(tiny[1].generate(IDS[:1], **GREEDY)[0, 4:]).split()
    assert len(pieces) >= 10


def test_a_pipeline_takes_it_for_the_familys_model(
    distributed: DistributedCausalLM, tiny: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With prompts of several lengths in one batch, which it pads."""
    complaints: list[str] = []
    monkeypatch.setattr("transformers.pipelines.base.logger.error", complaints.append)
    tokenizer = word_tokenizer()
    prompts = ["w5 w17 w42 w8", "w9 w3", "w33"]
    said = []
    for model in (distributed, tiny[1]):
        pipe = pipeline("text-generation", model=model, tokenizer=tokenizer, batch_size=3)
        said.append([answer["generated_text"] for [answer] in pipe(prompts, **GREEDY)])
    assert said[0] == said[1]
    assert all(text.startswith(prompt) and text != prompt for text, prompt in zip(said[0], prompts, strict=True))
    assert not complaints


def test_generations_side_by_side_do_not_mix(distributed: DistributedCausalLM, tiny: Whole) -> None:
    prompts = [IDS[:1] + shift for shift in range(4)]
    said: dict[int, list[list[int]]] = {}

    def answer(number: int) -> None:
        said[number] = distributed.generate(prompts[number], **GREEDY).tolist()

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [said[number] for number in range(4)] == [tiny[1].generate(prompt, **GREEDY).tolist() for prompt in prompts]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bloom", "gemma2-capped", "granite"])
def test_families_with_ends_of_their_own(family: str, tmp_path: Path) -> None:
    """Norms and factors before block 0, caps behind the last one, positions as biases; padded, and with beams."""
    whole = save_tiny_model(tmp_path, family)
    with handlers(tmp_path, Span(0, 4), Span(4, 6)) as servers:
        model = servers.model()
        torch.testing.assert_close(model(IDS).logits, whole(IDS).logits, atol=1e-4 * 10, rtol=1e-4)
        same(model, whole, IDS, **GREEDY)
        same(model, whole, IDS, num_beams=2, **GREEDY)
        for row, mask in enumerate(PADDED):
            real = IDS[row : row + 1, mask.bool()]
            padded = model.generate(IDS, attention_mask=PADDED, **GREEDY)[row, 4:]
            assert padded.tolist() == whole.generate(real, **GREEDY)[0, real.shape[1] :].tolist()


def test_what_servers_cannot_be_told_is_refused(distributed: DistributedCausalLM) -> None:
    with pytest.raises(LocalError, match="padded on the right"):
        distributed.generate(IDS, attention_mask=PADDED.flip(1), **GREEDY)
    with pytest.raises(LocalError, match="padding between its tokens"):
        distributed.generate(IDS, attention_mask=torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]]), **GREEDY)
    with pytest.raises(LocalError, match="servers keep the cache"):
        distributed.generate(IDS, cache=DynamicCache(), **GREEDY)
    with pytest.raises(LocalError, match="position_ids cannot be told"):
        distributed(IDS, position_ids=torch.arange(4)[None])
    with pytest.raises(LocalError, match="attention weights stay"):
        distributed(IDS, output_attentions=True)
    with pytest.raises(LocalError, match="either input_ids or inputs_embeds"):
        distributed()
