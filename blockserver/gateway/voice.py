"""The model with its tokenizer: text in, tokens out, and back. Knows what fits its context; not how tokens are made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockserver.client.chat import load_tokenizer
from blockserver.client.model import RemoteModel
from blockserver.gateway.asked import Messages, Prompt
from blockserver.gateway.manner import NOT_SAID, Manner, recommended
from blockserver.gateway.refusals import bad_request, unknown_model
from blockserver.model.facts import model_name, read_config
from blockserver.wire.protocol import MAX_LENGTH, MAX_LENGTH_UNGROUPED


@dataclass
class Voice:
    """`names` are those under which callers may ask for the model, the first is the one to teach."""

    model: RemoteModel
    tokenizer: Any
    names: tuple[str, ...]
    context: int
    """Tokens of prompt and answer together."""
    manner: Manner = NOT_SAID
    """Where a request does not say."""

    def __post_init__(self) -> None:
        # A prompt of many pages takes long enough to hold up everybody's streams.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")

    @classmethod
    def of(cls, folder: Path, model: RemoteModel, longest: int, wished: Manner = NOT_SAID) -> Voice:
        """`wished` comes before what the model's authors recommend. Raises LocalError where the folder holds no tokenizer."""
        config = read_config(folder)
        trained = getattr(config, "max_position_embeddings", None) or MAX_LENGTH
        # Servers, Petals' as well as ours, open shorter sessions where every head has keys and values of its own.
        grouped = model.facts.kv_heads < (getattr(config, "num_attention_heads", None) or 0)
        names = tuple(dict.fromkeys((model_name(folder), model.prefix)))
        served = MAX_LENGTH if grouped else MAX_LENGTH_UNGROUPED
        manner = wished.otherwise(recommended(folder))
        return cls(model, load_tokenizer(folder), names, min(longest, trained, served), manner)

    def check_name(self, asked: str) -> None:
        if asked not in self.names:
            raise unknown_model(asked, self.names[0])

    async def encode(self, prompt: Prompt) -> list[int]:
        """At least one token. Raises Refusal."""
        tokens = await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, prompt)
        if not tokens:
            raise bad_request(f"{prompt.field} is empty", prompt.field)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def spell(self, token: int) -> str:
        """One token by itself, also a special one."""
        return str(self.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def check_length(self, prompt: Prompt, tokens: int, max_tokens: int) -> None:
        if tokens + max_tokens <= self.context:
            return
        raise bad_request(
            f"this model holds {self.context:,} tokens here; the prompt has {tokens:,}, and {max_tokens:,} more are asked for",
            prompt.field,
            "context_length_exceeded",
        )

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _encode(self, prompt: Prompt) -> list[int]:
        if prompt.messages is not None:
            return self._encode_turns(prompt.messages)
        if prompt.tokens is not None:
            size = self.model.facts.vocab_size
            strange = [token for token in prompt.tokens if not 0 <= token < size]
            if strange:
                raise bad_request(f"token {strange[0]} is not within the vocabulary of {size:,}", "prompt")
            return list(prompt.tokens)
        return list(self.tokenizer(prompt.text)["input_ids"])

    def _encode_turns(self, messages: Messages) -> list[int]:
        if not getattr(self.tokenizer, "chat_template", None):
            raise bad_request("this model has no chat template: use /v1/completions", "messages", "no_chat_template")
        try:
            encoded = self.tokenizer.apply_chat_template(
                [dict(turn) for turn in messages], add_generation_prompt=True, return_dict=True
            )
        # Door: a template is the model's own program. It refuses what the model was not trained on, such as two turns of the
        # same side, and raises what it likes.
        except Exception as error:
            raise bad_request(f"the model's chat template refuses these messages: {str(error)[:200]}", "messages") from error
        return list(encoded["input_ids"])
