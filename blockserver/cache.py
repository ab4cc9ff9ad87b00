"""The attention cache: how much of it sessions may take, and the keys and values of one session.

The budget counts tokens times blocks, so that it needs no bytes and is right for a session over part of the span. It is
used from the event loop's thread only; a session's tensors from the compute thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from swarm.errors import RemoteError


class CacheFull(RemoteError):
    """Trying again helps once another session has ended."""


class Reservation:
    """Cache that a session holds. Releasing it twice does no harm."""

    def __init__(self, budget: CacheBudget, amount: int) -> None:
        self._budget = budget
        self.amount = amount

    def release(self) -> None:
        amount, self.amount = self.amount, 0
        self._budget._give_back(amount)


class CacheBudget:
    """`capacity` tokens times blocks, given to sessions first come, first served."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def left(self) -> int:
        return self.capacity - self._held

    async def reserve(self, amount: int, timeout_s: float = 0.0) -> Reservation:
        """Takes `amount` now, or within `timeout_s` as others release theirs; CacheFull otherwise."""
        if amount > self.capacity:
            raise CacheFull(f"the session needs cache for {amount:,} tokens x blocks; this server has {self.capacity:,} in all")
        if amount > self.left or self._waiting:
            await self._wait_for_turn(amount, timeout_s)
        else:
            self._held += amount
        return Reservation(self, amount)

    async def _wait_for_turn(self, amount: int, timeout_s: float) -> None:
        full = f"the cache is full: {amount:,} tokens x blocks are needed, {self.left:,} of {self.capacity:,} are free"
        if timeout_s <= 0:
            raise CacheFull(full)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the turn.
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(turn)
        except BaseException as error:
            self._leave_queue(amount, turn)
            if isinstance(error, TimeoutError):
                raise CacheFull(f"{full}, and none became free within {timeout_s:g} s") from None
            raise

    def _leave_queue(self, amount: int, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self._give_back(amount)
        else:
            self._waiting.remove((amount, turn))
            self._serve_waiting()

    def _give_back(self, amount: int) -> None:
        self._held -= amount
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.left:
            amount, turn = self._waiting.popleft()
            self._held += amount
            turn.set_result(None)


class SessionCache(Cache):
    """Keys and values of one session, for up to `max_length` tokens, written in place.

    `position` tokens are in it. It moves only by `advance` and `rollback`, so a step that fails half way leaves it as it was.
    """

    def __init__(self, blocks: int, max_length: int) -> None:
        super().__init__(layers=[_Slots(self) for _ in range(blocks)])
        self.max_length = max_length
        self.position = 0

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


class _Slots(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One block's keys and values, `[batch, kv heads, max length, head dim]`, taken whole at the first step.

    Sliding layers keep all tokens as well: their mask hides what the window has left, and a rollback finds it again.
    """

    is_sliding = False
    is_croppable = True

    def __init__(self, session: SessionCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        length = self._session.max_length
        self.keys = key_states.new_empty((*key_states.shape[:2], length, key_states.shape[3]))
        self.values = value_states.new_empty((*value_states.shape[:2], length, value_states.shape[3]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        start = self._session.position
        end = start + key_states.shape[2]
        self.keys[:, :, start:end] = key_states
        self.values[:, :, start:end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        if self.keys is None or self.values is None:
            return
        used = self._session.position
        self.keys[:, :, :used] = self.keys[:, :, :used].index_select(0, beam_idx)
        self.values[:, :, :used] = self.values[:, :, :used].index_select(0, beam_idx)

    def get_seq_length(self) -> int:
        return self._session.position

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._session.position + query_length, 0

    def get_max_length(self) -> int:
        return self._session.max_length
