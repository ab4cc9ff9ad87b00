"""Gradients that come back through a swarm are the local ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from blockserver.client.auto.causal_lm import DistributedCausalLM
from blockserver.client.training.prompts import LearnedPrompts
from tests.blockserver.client.threaded import Swarm

IDS = torch.tensor([[5, 17, 42, 8], [9, 3, 33, 71]])
LEFT = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
PREFIX = 3

Whole = tuple[Path, PreTrainedModel]


@pytest.fixture
def learned(distributed: DistributedCausalLM) -> Iterator[LearnedPrompts]:
    """Deep prompts that are not zero any more."""
    torch.manual_seed(11)
    prompts = LearnedPrompts("deep_ptune", PREFIX, distributed.get_input_embeddings().weight, 6)
    assert prompts.deep is not None
    torch.nn.init.normal_(prompts.deep, std=0.2)
    distributed.learned = prompts
    yield prompts
    distributed.learned = None


def close(actual: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert actual is not None and expected is not None and float(expected.abs().max()) > 1e-3
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def with_prompts(whole: PreTrainedModel, shallow: torch.Tensor, deep: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The whole model's logits with the same prompts, in transformers' own words: embeddings in front, hooks on layers."""

    def hook(block: int) -> object:
        def add(_: object, args: tuple[torch.Tensor, ...], kwargs: dict[str, object]) -> object:
            hidden, *rest = args
            added = hidden + torch.nn.functional.pad(deep[block].expand(len(ids), -1, -1), (0, 0, 0, hidden.shape[1] - PREFIX))
            return (added, *rest), kwargs

        return whole.model.layers[block].register_forward_pre_hook(add, with_kwargs=True)

    handles = [hook(block) for block in range(6)]
    try:
        embeds = torch.cat([shallow.expand(len(ids), -1, -1), whole.get_input_embeddings()(ids)], dim=1)
        return whole(inputs_embeds=embeds).logits[:, PREFIX:]
    finally:
        for handle in handles:
            handle.remove()  # type: ignore[attr-defined]


def test_gradients_of_the_input(distributed: DistributedCausalLM, tiny: Whole) -> None:
    embeds = tiny[1].get_input_embeddings()(IDS).detach()
    found = []
    for model in (distributed, tiny[1]):
        given = embeds.clone().requires_grad_()
        loss = model(inputs_embeds=given, labels=IDS).loss
        loss.backward()
        found.append((loss, given.grad))
    torch.testing.assert_close(found[0][0], found[1][0])
    close(found[0][1], found[1][1])


def test_gradients_of_shallow_and_deep_prompts(distributed: DistributedCausalLM, tiny: Whole, learned: LearnedPrompts) -> None:
    assert learned.deep is not None
    distributed(IDS, labels=IDS).loss.backward()
    shallow, deep = (weight.detach().clone().requires_grad_() for weight in (learned.shallow, learned.deep))
    logits = with_prompts(tiny[1], shallow, deep, IDS)
    tiny[1].loss_function(logits.contiguous(), IDS, vocab_size=96).backward()
    close(learned.shallow.grad, shallow.grad)
    close(learned.deep.grad, deep.grad)


def test_padding_has_no_part_in_gradients(distributed: DistributedCausalLM, learned: LearnedPrompts) -> None:
    """The padded row's gradients are those of the row alone."""
    labels = IDS.masked_fill(LEFT == 0, -100)
    assert learned.deep is not None

    def gradients(ids: torch.Tensor, mask: torch.Tensor | None, wanted: torch.Tensor) -> list[torch.Tensor]:
        learned.zero_grad()
        logits = distributed(ids, attention_mask=mask).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted[:, 1:].flatten(), reduction="sum")
        return list(torch.autograd.grad(loss, [learned.shallow, learned.deep]))

    # The token after the padding is not predicted: what stands before it differs.
    labels[0, 1] = -100
    together = gradients(IDS, LEFT, labels)
    alone = zip(gradients(IDS[:1, 1:], None, labels[:1, 1:]), gradients(IDS[1:], None, labels[1:]), strict=True)
    for both, (first, second) in zip(together, alone, strict=True):
        close(both, first + second)


def test_generation_heeds_what_was_learned(distributed: DistributedCausalLM, tiny: Whole, learned: LearnedPrompts) -> None:
    """With a cache, several beams and padding as well: the prompts come before each row's first token."""
    assert learned.deep is not None
    shallow, deep, ids = learned.shallow.detach(), learned.deep.detach(), IDS[:1]
    for _ in range(6):
        ids = torch.cat([ids, with_prompts(tiny[1], shallow, deep, ids)[:, -1:].argmax(-1)], dim=1)
    how = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    assert distributed.generate(IDS[:1], **how).tolist() == ids.tolist()
    assert distributed.generate(IDS[:1], use_cache=False, **how).tolist() == ids.tolist()
    padded = distributed.generate(
        torch.nn.functional.pad(IDS[:1], (2, 0)).repeat(2, 1), attention_mask=torch.tensor([[0, 0, 1, 1, 1, 1]] * 2), **how
    )
    assert padded[:, 2:].tolist() == ids.tolist() * 2
    beams = {**how, "num_beams": 3}
    assert distributed.generate(IDS, **beams).tolist() == distributed.generate(IDS, use_cache=False, **beams).tolist()


def test_a_vector_in_an_edit_takes_gradients(distributed: DistributedCausalLM, threaded: Swarm) -> None:
    """So a direction at any boundary can be learned. Compared with a difference quotient."""
    steer = torch.zeros(32, requires_grad=True)

    def loss(vector: torch.Tensor) -> torch.Tensor:
        with distributed.editing({4: lambda hidden: hidden + vector}):
            return distributed(IDS, labels=IDS).loss

    loss(steer).backward()
    assert steer.grad is not None
    direction = steer.grad / steer.grad.norm()
    slope = (loss(direction * 1e-2) - loss(-direction * 1e-2)) / 2e-2
    assert float(slope) == pytest.approx(float(steer.grad.norm()), rel=0.02)
