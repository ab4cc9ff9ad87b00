"""A tiny model that can be talked to: every byte is a token, so its random words are full of halves of characters."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from tests.tiny_models import tiny_config

SPECIAL = ("<pad>", "<begin>", "<end>")
TEMPLATE = (
    "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Tokens 0 to 2 are special; all others are one byte each."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: place for place, word in enumerate((*SPECIAL, *letters))}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<begin>", eos_token="<end>", chat_template=TEMPLATE
    )


def save_speaking_model(folder: Path) -> PreTrainedModel:
    """A Llama of six blocks with that tokenizer. Returns the whole model to compare with."""
    tokenizer = byte_tokenizer()
    config = tiny_config("llama")
    config.vocab_size = len(tokenizer)
    config.max_position_embeddings = 1024
    # Its words are drawn at random: one that ends them would now and then come first.
    config.eos_token_id = None
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder, max_shard_size="100KB")
    tokenizer.save_pretrained(folder)
    return model
