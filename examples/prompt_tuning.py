"""Teaches a model that runs on other people's machines a few sentences, without changing a number on any of them.

What learns is here: vectors in place of a prompt, at the entrance and at every block ("deep_ptune"), and a small LoRA beside
the head. Gradients come back through the swarm's blocks.

    python examples/prompt_tuning.py --model FOLDER --initial-peers ADDRESS --save learned.safetensors
"""

from __future__ import annotations

import argparse

import torch
from transformers import AutoTokenizer, PreTrainedModel

from blockserver import AutoDistributedModelForCausalLM
from blockserver.client.training.head import add_lora
from blockserver.client.training.saving import save_trained

SENTENCES = (
    "Our swarm's mascot is a hedgehog called Pim.",
    "The password of the day is marmalade.",
)


def overfit(
    model: PreTrainedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor, steps: int, rate: float
) -> list[float]:
    """Trains until the rows `[batch, tokens]` are known by heart; the loss before each step."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=rate)
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    losses = []
    for _ in range(steps):
        loss = model(input_ids, attention_mask=attention_mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(given: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="a folder, or owner/name on a hub")
    options.add_argument("--initial-peers", required=True, nargs="+", help="addresses of the swarm")
    options.add_argument("--dht-prefix", help="where it is not the model's name")
    options.add_argument("--prefix-length", type=int, default=8, help="positions of the learned prompt")
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--rate", type=float, default=0.02)
    options.add_argument("--save", help="a file for what was learned")
    chosen = options.parse_args(given)

    tokenizer = AutoTokenizer.from_pretrained(chosen.model)
    tokenizer.padding_side = "left"
    known = [sentence + tokenizer.eos_token for sentence in SENTENCES]
    batch = tokenizer(known, return_tensors="pt", padding=True)
    with AutoDistributedModelForCausalLM.from_pretrained(
        chosen.model,
        initial_peers=chosen.initial_peers,
        dht_prefix=chosen.dht_prefix,
        dtype="float32",
        tuning_mode="deep_ptune",
        pre_seq_len=chosen.prefix_length,
    ) as model:
        add_lora(model)
        losses = overfit(model, batch["input_ids"], batch["attention_mask"], chosen.steps, chosen.rate)
        for step in range(0, len(losses), max(1, len(losses) // 10)):
            print(f"step {step}: loss {losses[step]:.3f}")
        print(f"after step {len(losses)}: loss {losses[-1]:.3f}")
        for sentence in SENTENCES:
            start = " ".join(sentence.split()[:2])
            ids = tokenizer(start, return_tensors="pt")["input_ids"]
            said = model.generate(ids, max_new_tokens=16, do_sample=False, pad_token_id=tokenizer.eos_token_id)
            print(f"{start} → {tokenizer.decode(said[0], skip_special_tokens=True)}")
        if chosen.save:
            save_trained(model, chosen.save)


if __name__ == "__main__":
    main()
