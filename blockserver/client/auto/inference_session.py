"""A cache that lasts over several calls of `generate`, and the tokens that are in it.

Knows tokens and their padding; the cache itself is `cache`.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

import torch

from blockserver.client.auto.cache import RemoteCache
from swarm.errors import LocalError
from swarm.routing import Route

if TYPE_CHECKING:
    from blockserver.client.auto.causal_lm import DistributedCausalLM


class InferenceSession:
    """Made by `model.inference_session`. Within `with`, the model's `generate` goes on where the last call ended: its input is
    only what is new, or None. Not for several threads."""

    def __init__(self, model: DistributedCausalLM, cache: RemoteCache) -> None:
        self.cache = cache
        self.output_ids: torch.Tensor | None = None
        """All tokens so far, `[batch, tokens]`: prompts and answers."""
        self.attention_mask: torch.Tensor | None = None
        self._model = model

    @property
    def position(self) -> int:
        """Tokens in the servers' cache: all but the last one, which no block has seen yet."""
        return self.cache.columns

    @property
    def route(self) -> Route:
        """The servers in use, in order; empty before the first step."""
        return self.cache.route

    @property
    def recoveries(self) -> int:
        """How often a server was replaced."""
        return self.cache.recoveries

    def extended(self, new: torch.Tensor | None, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, int]:
        """All tokens with the new ones, their mask, and how many were there before."""
        before = self.output_ids
        if before is None:
            if new is None:
                raise LocalError("there must be at least one token to go on from")
            return new, torch.ones_like(new) if mask is None else mask, 0
        if self.attention_mask is None or (new is not None and new.shape[0] != before.shape[0]):
            raise LocalError(f"the session holds {before.shape[0]} rows; give as many")
        if new is None:
            return before, self.attention_mask, before.shape[1]
        if mask is not None and mask.shape == new.shape:
            mask = torch.cat([self.attention_mask, mask.to(self.attention_mask)], dim=1)
        else:
            mask = torch.cat([self.attention_mask, self.attention_mask.new_ones(new.shape)], dim=1)
        return torch.cat([before, new.to(before)], dim=1), mask, before.shape[1]

    def keep(self, sequences: torch.Tensor, mask: torch.Tensor) -> None:
        """After a call: what was said is part of the conversation."""
        added = sequences.shape[1] - mask.shape[1]
        self.output_ids = sequences
        self.attention_mask = torch.cat([mask, mask.new_ones(mask.shape[0], added)], dim=1)

    def close(self) -> None:
        """The servers free their cache."""
        self.cache.close()

    def __enter__(self) -> Self:
        if self._model.active_session is not None:
            raise LocalError("a session is open already; close it first, or pass one as generate(session=...)")
        self._model.active_session = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._model.active_session = None
        self.close()
