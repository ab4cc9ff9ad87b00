"""`generate` over sessions: transformers does the choosing, the cache is the servers'.

Knows which session a call uses and when it ends; all ways of choosing tokens are transformers' own.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig

from blockserver.client.auto.blocks import RemoteBlocks
from blockserver.client.auto.cache import RemoteCache
from blockserver.client.auto.connection import Connection
from blockserver.client.auto.inference_session import InferenceSession
from blockserver.client.inspect.walk import Stops
from blockserver.wire.protocol import MAX_LENGTH
from swarm.errors import LocalError
from swarm.wire.spans import Span


class Generating:
    """What a model over the swarm does otherwise than transformers' GenerationMixin, which stands behind it."""

    blocks: RemoteBlocks
    connection: Connection
    stops: Stops
    active_session: InferenceSession | None

    def inference_session(self, max_length: int) -> InferenceSession:
        """Keeps the cache over several calls of `generate`; room for `max_length` tokens in each row, prompts and answers."""
        return InferenceSession(self, self.remote_cache(max_length))  # type: ignore[arg-type]

    def remote_cache(self, max_length: int | None = None) -> RemoteCache:
        """A cache to be given to `forward` or `generate`, and closed by whoever asked for it."""
        if max_length is not None and not 1 <= max_length <= MAX_LENGTH:
            raise LocalError(f"a session holds 1 to {MAX_LENGTH:,} tokens, prompt and answer together, not {max_length:,}")
        return RemoteCache(self.connection, self.blocks.span, self._open_lane, max_length)

    @torch.no_grad()
    def generate(
        self,
        inputs: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *,
        session: InferenceSession | None = None,
        **kwargs: Any,
    ) -> Any:
        """As transformers'. With a `session`, or within one, the input is what is new, and so is the output (of which the
        input is the beginning, as always)."""
        session = session or self.active_session
        if session is not None:
            return self._go_on(session, inputs, generation_config, kwargs)
        if kwargs.get("cache") is not None or kwargs.get("past_key_values") is not None or kwargs.get("use_cache") is False:
            return super().generate(inputs, generation_config, **kwargs)  # type: ignore[misc]
        cache = self.remote_cache()
        try:
            return super().generate(inputs, generation_config, cache=cache, **kwargs)  # type: ignore[misc]
        finally:
            cache.close()

    def _go_on(
        self,
        session: InferenceSession,
        inputs: torch.Tensor | None,
        generation_config: GenerationConfig | None,
        kwargs: dict[str, Any],
    ) -> Any:
        new = kwargs.pop("input_ids", None) if inputs is None else inputs
        for name in ("num_beams", "num_return_sequences"):
            if (getattr(generation_config, name, None) or 1) > 1 or (kwargs.get(name) or 1) > 1:
                raise LocalError(f"{name} above 1 makes other rows than the session has; generate without a session")
        ids, mask, before = session.extended(new, kwargs.pop("attention_mask", None))
        # The last token was never fed; more than that is there where a call was broken off.
        session.cache.crop(-max(0, session.cache.columns - max(0, before - 1)))
        result = super().generate(  # type: ignore[misc]
            ids, generation_config, attention_mask=mask, cache=session.cache, **kwargs
        )
        sequences = result if isinstance(result, torch.Tensor) else result.sequences
        session.keep(sequences, mask)
        if isinstance(result, torch.Tensor):
            return sequences[:, before:].clone()
        result.sequences = sequences[:, before:].clone()
        return result

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        """The length becomes known here. transformers' caches have no part in this."""
        cache = model_kwargs.get("cache")
        if cache is None:
            generation_config.use_cache = False
            return
        if not isinstance(cache, RemoteCache):
            raise LocalError("the servers keep the cache: pass no other than `model.remote_cache` makes")
        if cache.max_length is None:
            cache.max_length = max_cache_length + _drafted(generation_config)

    def _open_lane(self, max_length: int, parts: tuple[Span, ...]) -> Any:
        return self.blocks.lane(max_length, parts)


def _drafted(config: GenerationConfig) -> int:
    """Tokens that a step may try beyond the longest answer, in assisted generation."""
    return 1 + max(config.prompt_lookup_num_tokens or 0, config.num_assistant_tokens or 0)
