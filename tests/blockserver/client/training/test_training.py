"""What the client owns can be trained over a swarm, kept in a file, and used by another client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel, Trainer, TrainingArguments

from blockserver import AutoDistributedModelForCausalLM
from blockserver.client.auto.causal_lm import LEARNED, DistributedCausalLM
from blockserver.client.training.head import LoraLinear, add_lora, train_head
from blockserver.client.training.saving import load_trained, save_trained
from examples.prompt_tuning import overfit
from swarm.errors import LocalError
from swarm.wire.spans import Span
from tests.blockserver.client.threaded import Swarm, handlers
from tests.tiny_models import save_tiny_model

IDS = torch.tensor([[5, 17, 42, 8, 61], [9, 3, 33, 71, 20]])
MASK = torch.ones_like(IDS)
GREEDY: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}

Whole = tuple[Path, PreTrainedModel]


def fresh(tiny: Whole, threaded: Swarm, **more: Any) -> DistributedCausalLM:
    torch.manual_seed(0)
    return AutoDistributedModelForCausalLM.from_pretrained(
        tiny[0], initial_peers=threaded.addresses, dtype="float32", dht_prefix=threaded.prefix, **more
    )


@pytest.fixture(params=["lora", "head"])
def trainable(request: pytest.FixtureRequest, tiny: Whole, threaded: Swarm) -> Iterator[DistributedCausalLM]:
    with fresh(tiny, threaded) as model:
        add_lora(model, rank=4) if request.param == "lora" else train_head(model)
        yield model


@pytest.mark.slow
def test_three_servers_teach_two_rows_by_heart_and_a_file_keeps_them(tiny: Whole, threaded: Swarm, tmp_path: Path) -> None:
    """Deep prompts and a LoRA learn; the blocks and all else stay as they are."""
    assert len(threaded.peers) == 3
    how = {"tuning_mode": "deep_ptune", "pre_seq_len": 4}
    with fresh(tiny, threaded, **how) as model:
        add_lora(model, rank=4)
        before = {name: weight.clone() for name, weight in model.named_parameters() if not weight.requires_grad}
        losses = overfit(model, IDS, MASK, steps=60, rate=0.05)
        assert losses[-1] < 0.1 < losses[0] / 10
        assert model.generate(IDS[:, :2], **GREEDY).tolist() == IDS.tolist()
        for name, weight in model.named_parameters():
            assert weight.requires_grad or weight.equal(before[name])
        save_trained(model, tmp_path / "learned.safetensors")
    assert tiny[1].generate(IDS[:, :2], **GREEDY).tolist() != IDS.tolist()
    with fresh(tiny, threaded, **how) as another:
        add_lora(another, rank=4)
        assert another.generate(IDS[:, :2], **GREEDY).tolist() != IDS.tolist()
        load_trained(another, tmp_path / "learned.safetensors")
        assert another.generate(IDS[:, :2], **GREEDY).tolist() == IDS.tolist()


@pytest.mark.slow
def test_transformers_own_trainer_takes_it(tiny: Whole, threaded: Swarm, tmp_path: Path) -> None:
    """And its checkpoint is what was learned."""
    rows = [{"input_ids": row, "labels": row} for row in IDS.tolist()]
    how = TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=10, learning_rate=0.05, per_device_train_batch_size=2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    with fresh(tiny, threaded, tuning_mode="ptune", pre_seq_len=4) as model:
        trainer = Trainer(model, how, train_dataset=rows)
        before = trainer.evaluate(rows)["eval_loss"]
        trainer.train()
        assert trainer.evaluate(rows)["eval_loss"] < before - 0.1
        trainer.save_model()
        learned = model.learned.shallow.detach().clone()
    assert list(load_file(tmp_path / LEARNED)) == ["learned.shallow"]
    with fresh(tiny, threaded, tuning_mode="ptune", pre_seq_len=4) as another:
        load_trained(another, tmp_path / LEARNED)
        assert another.learned.shallow.equal(learned)


def test_shallow_prompts_alone_lower_the_loss(tiny: Whole, threaded: Swarm) -> None:
    with fresh(tiny, threaded, tuning_mode="ptune", pre_seq_len=4) as model:
        assert [name for name, weight in model.named_parameters() if weight.requires_grad] == ["learned.shallow"]
        losses = overfit(model, IDS, MASK, steps=20, rate=0.05)
    assert losses[-1] < losses[0] - 0.2


def test_a_head_learns_without_a_gradient_through_the_swarm(trainable: DistributedCausalLM, tiny: Whole) -> None:
    torch.testing.assert_close(trainable(IDS).logits, tiny[1](IDS).logits, atol=1e-4, rtol=0)
    losses = overfit(trainable, IDS, MASK, steps=40, rate=0.05)
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("family", ["gemma", "bloom", "gpt_neox"])
def test_a_tied_head_is_trained_apart_from_the_embedding(family: str, tmp_path: Path) -> None:
    whole = save_tiny_model(tmp_path, family)
    with handlers(tmp_path, Span(0, 6)) as servers:
        model = servers.model()
        embedding = model.get_input_embeddings().weight.clone()
        head = train_head(model)
        torch.testing.assert_close(model(IDS).logits, whole(IDS).logits, atol=1e-3, rtol=1e-4)
        overfit(model, IDS, MASK, steps=2, rate=0.05)
        assert model.get_input_embeddings().weight.equal(embedding)
        assert not head.weight.equal(embedding)


def test_a_lora_begins_as_nothing_and_leaves_its_base_alone() -> None:
    base = nn.Linear(6, 5).requires_grad_(False)
    lora = LoraLinear(base, rank=2, alpha=4.0)
    hidden = torch.randn(3, 6)
    assert lora(hidden).equal(base(hidden))
    with torch.no_grad():
        lora.up.normal_()
    torch.testing.assert_close(lora(hidden), base(hidden) + 2.0 * hidden @ (lora.up @ lora.down).T)
    assert sorted(name for name, weight in lora.named_parameters() if weight.requires_grad) == ["down", "up"]
    assert lora(hidden.bfloat16().float()).dtype is torch.float32


def test_what_makes_no_sense_is_refused(trainable: DistributedCausalLM, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="the rank is 1 to 5, not 6"):
        LoraLinear(nn.Linear(6, 5), 6, 1.0)
    (tmp_path / "torn").write_bytes(b"torn")
    with pytest.raises(LocalError, match="cannot be read as safetensors"):
        load_trained(trainable, tmp_path / "torn")
    save_trained(trainable, tmp_path / "kept")
    with pytest.raises(LocalError, match="what this model trains is bias, weight"):
        load_trained(nn.Linear(2, 2), tmp_path / "kept")
    with pytest.raises(LocalError, match="nothing that is trained"):
        save_trained(nn.Linear(2, 2).requires_grad_(False), tmp_path / "nothing")


def test_the_modes_of_prompt_tuning_are_two(tiny: Whole, threaded: Swarm) -> None:
    with pytest.raises(LocalError, match="'ptune' or 'deep_ptune', not 'deep'"):
        fresh(tiny, threaded, tuning_mode="deep")
    with pytest.raises(LocalError, match="at least one position"):
        fresh(tiny, threaded, tuning_mode="ptune", pre_seq_len=0)
