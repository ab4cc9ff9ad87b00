"""Guesses at the next tokens, which the chain checks in one step instead of one step for each.

A guess that is wrong costs a few positions of one step; the text is the same as without guesses, as each token is still chosen
from the chain's own logits. Knows token ids; not sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from blockserver.model.blocks import loading_quietly
from swarm.errors import LocalError

MOST_GUESSES = 15
"""With the token before them sixteen positions: a step that long still costs servers little more than one token."""
FEWEST_GUESSES = 2


class Drafts(Protocol):
    """Called on a thread, one call at a time for each conversation."""

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow these; none where there is nothing to go by."""
        ...


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """What followed when the last few tokens stood in the text before: quotes, code, lists, tables. Costs nothing."""

    longest: int = 4
    shortest: int = 2

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        text = list(tokens)
        for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            tail = text[-size:]
            for start in range(len(text) - size - 1, -1, -1):
                if text[start : start + size] == tail:
                    return _continued(text, start + size, most)
        return []


def _continued(text: list[int], at: int, most: int) -> list[int]:
    """What stands from `at` on; beyond the end the guesses themselves, so that a short period goes on."""
    whole = list(text)
    for place in range(at, at + most):
        whole.append(whole[place])
    return whole[len(text) :]


class SmallModel:
    """A model on this machine, of the same vocabulary, that guesses greedily. One for each conversation."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        try:
            with loading_quietly():
                model: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise LocalError(f"{folder} holds no model that can be read: {str(error).splitlines()[0][:200]}") from error
        has = model.config.vocab_size
        if has != vocab_size:
            raise LocalError(f"{folder} has a vocabulary of {has:,} tokens, the swarm's model {vocab_size:,}")
        self._model = model.eval()
        self._cache = DynamicCache()
        self._cached: list[int] = []

    @torch.inference_mode()
    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        if most < 1 or not tokens:
            return []
        text, guesses = list(tokens), []
        # One token at least must be fed, for its logits.
        kept = min(common_length(self._cached, text), len(text) - 1)
        if len(self._cached) > kept:
            self._cache.crop(kept - len(self._cached))
        fed = text[kept:]
        for _ in range(most):
            output = self._model(torch.tensor([fed]), cache=self._cache, use_cache=True, logits_to_keep=1)
            fed = [int(output.logits[0, -1].argmax())]
            guesses += fed
        self._cached = [*text, *guesses[:-1]]
        return guesses


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of their common beginning."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass(slots=True)
class Eagerness:
    """How many guesses are worth a try: more while all are right, fewer when they are not."""

    most: int = MOST_GUESSES
    now: int = 4

    def learned(self, guesses: int, right: int) -> None:
        if guesses and right == guesses:
            self.now = min(2 * max(self.now, guesses), self.most)
        elif guesses:
            self.now = max(FEWEST_GUESSES, min(self.now, right + 1))
