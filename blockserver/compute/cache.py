"""The keys and values of one session, in memory of its own.

Knows one session: how its memory grows with its tokens, and how it goes back and reorders. How much memory sessions may
have is `admission`, sessions that are computed together are `slots`. Used from the compute thread only.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from swarm.errors import RemoteError

SMALLEST = 32
"""Tokens of a session's first memory; it doubles from there."""


def room_for(tokens: int, most: int) -> int:
    """Tokens to take memory for: a power of two, so that growth copies little, but no more than were reserved."""
    return min(max(SMALLEST, 1 << (tokens - 1).bit_length()), most)


class SessionCache(Cache):
    """Keys and values of one session, for up to `max_length` tokens, written in place.

    `position` tokens are in it. It moves only by `advance` and `rollback`, so a step that fails half way leaves it as it was.
    """

    def __init__(self, blocks: int, max_length: int) -> None:
        super().__init__(layers=[OwnMemory(self) for _ in range(blocks)])
        self.max_length = max_length
        self.position = 0

    @property
    def memories(self) -> list[OwnMemory]:
        return [layer for layer in self.layers if isinstance(layer, OwnMemory)]

    @property
    def bytes(self) -> int:
        tensors = (tensor for memory in self.memories for tensor in (memory.keys, memory.values))
        return sum(tensor.numel() * tensor.itemsize for tensor in tensors if tensor is not None)

    def advance(self, tokens: int) -> None:
        self.position += tokens

    def rollback(self, position: int) -> None:
        """Forgets the tokens from `position` on."""
        if not 0 <= position <= self.position:
            raise RemoteError(f"a session with {self.position} tokens cannot go back to position {position}")
        self.position = position

    def reorder(self, rows: torch.LongTensor) -> None:
        """Row i of the batch takes over what row `rows[i]` holds."""
        for layer in self.layers:
            layer.reorder_cache(rows)

    def free(self) -> None:
        for memory in self.memories:
            memory.keys = memory.values = None
            memory.is_initialized = False


class OwnMemory(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One block's keys and values, `[batch, kv heads, room, head dim]`; the room doubles as the session grows.

    Sliding layers keep all tokens as well: their mask hides what the window has left, and a rollback finds it again.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, session: SessionCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        start = self._session.position
        end = start + key_states.shape[2]
        if end > self.keys.shape[2]:
            room = room_for(end, self._session.max_length)
            self.keys, self.values = _longer(self.keys, start, room), _longer(self.values, start, room)
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        if self.keys is None or self.values is None:
            return
        used = self._session.position
        rows = beam_idx.to(self.keys.device)
        self.keys[:, :, :used] = self.keys[:, :, :used].index_select(0, rows)
        self.values[:, :, :used] = self.values[:, :, :used].index_select(0, rows)

    def get_seq_length(self) -> int:
        return self._session.position

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._session.position + query_length, 0

    def get_max_length(self) -> int:
        return self._session.max_length


def _longer(tensor: torch.Tensor, used: int, room: int) -> torch.Tensor:
    longer = tensor.new_empty((*tensor.shape[:2], room, tensor.shape[3]))
    longer[:, :, :used] = tensor[:, :, :used]
    return longer
