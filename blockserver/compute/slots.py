"""Rows side by side: the caches of sessions that are computed together.

A `Slots` holds, for each block, keys and values `[row, kv heads, length, head dim]` of several sessions. A session moves in
once, when it first decodes together with others, and stays; a batch is a view on adjacent rows, so that nothing is copied
in a step. Rows change places when those of a batch do not lie side by side, which settles after a few steps. Free rows hold
zeros: what a masked position holds is multiplied by zero, and zero times NaN is NaN. Knows tensors and positions, not
modules or budgets. Used from the compute thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from blockserver.compute.cache import SessionCache, room_for

SHORTEST = 64
"""Length of the first rows; it doubles from there."""

CLASSES = (512, 4_096, 32_768)
"""Sessions up to one of these lengths share slots: the attention of all rows reads as much as the longest row's."""


def length_class(tokens: int) -> int | None:
    return next((most for most in CLASSES if tokens <= most), None)


@dataclass(slots=True)
class Seat:
    """Row `rows[i]` holds row i of the session's batch."""

    cache: SessionCache
    rows: list[int]


class Slots:
    """`longest` is the class: rows never grow beyond it."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.length = 0
        self.seats: dict[SessionCache, Seat] = {}
        self._occupants: list[Seat | None] = []
        self._layers: list[_Layer] = []
        self._bytes_per_token = 0
        self.window = Window(self._layers)

    @property
    def bytes(self) -> int:
        return len(self._occupants) * self.length * self._bytes_per_token

    def __contains__(self, cache: object) -> bool:
        return cache in self.seats

    def bytes_with(self, joining: Sequence[SessionCache], length: int) -> int:
        """What it would take to hold these as well, with room for `length` tokens in each row."""
        rows = sum(len(seat.rows) for seat in self.seats.values()) + sum(_rows(cache) for cache in joining)
        per_token = self._bytes_per_token or _bytes_per_token(joining[0])
        return self._rows_for(rows) * max(self.length, self._length_for(length)) * per_token

    def make_room(self, length: int) -> None:
        """Rows hold at least `length` tokens from now on."""
        wanted = self._length_for(length)
        if wanted > self.length:
            for layer in self._layers:
                layer.grow(len(self._occupants), wanted)
            self.length = wanted

    def join(self, cache: SessionCache) -> None:
        """Takes over what the session has in its own memory, which is freed."""
        if not self._layers:
            self._layers.extend(_Layer(memory.keys, memory.values) for memory in cache.memories)
            self._bytes_per_token = _bytes_per_token(cache)
            self.window.lay(self._layers)
        self.make_room(cache.position + 1)
        rows = self._free_rows(_rows(cache))
        seat = Seat(cache, rows)
        for layer, memory in zip(self._layers, cache.memories, strict=True):
            layer.take(rows, memory.keys, memory.values, cache.position)
        for row in rows:
            self._occupants[row] = seat
        self.seats[cache] = seat
        cache.free()

    def leave(self, cache: SessionCache) -> None:
        """Gives the session memory of its own again."""
        seat = self.seats[cache]
        used, room = cache.position, room_for(cache.position, cache.max_length)
        for layer, memory in zip(self._layers, cache.memories, strict=True):
            if layer.keys is not None and layer.values is not None:
                memory.keys = _own(layer.keys, seat.rows, used, room)
                memory.values = _own(layer.values, seat.rows, used, room)
                memory.is_initialized = True
        self.drop(cache)

    def drop(self, cache: SessionCache) -> None:
        """The session has ended. The last one to go takes the memory with it."""
        seat = self.seats.pop(cache)
        for row in seat.rows:
            self._occupants[row] = None
        if not self.seats:
            self._layers.clear()
            self._occupants.clear()
            self.length = 0
            self.window.lay(self._layers)
            return
        for layer in self._layers:
            layer.clear(seat.rows)

    def forget_after(self, cache: SessionCache) -> None:
        """Zeros behind the session's position: a failed step may have left NaN there."""
        for layer in self._layers:
            layer.clear(self.seats[cache].rows, cache.position)

    def reorder(self, cache: SessionCache, order: torch.Tensor) -> None:
        rows = self.seats[cache].rows
        if rows != [rows[row] for row in order.tolist()]:
            for layer in self._layers:
                layer.reorder(rows, order, cache.position)

    def gather(self, caches: Sequence[SessionCache]) -> list[int]:
        """Brings the sessions' rows side by side and opens the window on them.

        For each row of the sessions' batches, one session after another, its place in the window.
        """
        active = {row for cache in caches for row in self.seats[cache].rows}
        start = self._best_start(active)
        inside = range(start, start + len(active))
        outsiders = sorted(active - set(inside))
        for row, place in zip(outsiders, (row for row in inside if row not in active), strict=True):
            self._swap(row, place)
        positions = [0] * len(active)
        places = []
        for cache in caches:
            for row in self.seats[cache].rows:
                positions[row - start] = cache.position
                places.append(row - start)
        self.window.open(start, positions)
        return places

    def _best_start(self, active: set[int]) -> int:
        """Where the fewest rows must move."""
        starts = range(len(self._occupants) - len(active) + 1)
        return max(starts, key=lambda start: sum(row in active for row in range(start, start + len(active))))

    def _swap(self, one: int, other: int) -> None:
        seats = self._occupants[one], self._occupants[other]
        # One token further than the positions: a step that failed may have written there.
        used = min(self.length, 1 + max(seat.cache.position if seat else 0 for seat in seats))
        for layer in self._layers:
            layer.swap(one, other, used)
        self._occupants[one], self._occupants[other] = seats[1], seats[0]
        for seat in {id(seat): seat for seat in seats if seat}.values():
            seat.rows[:] = [{one: other, other: one}.get(row, row) for row in seat.rows]

    def _free_rows(self, count: int) -> list[int]:
        free = [row for row, seat in enumerate(self._occupants) if seat is None]
        if len(free) < count:
            before = len(self._occupants)
            rows = self._rows_for(before - len(free) + count)
            for layer in self._layers:
                layer.grow(rows, self.length)
            self._occupants.extend([None] * (rows - before))
            free.extend(range(before, rows))
        return free[:count]

    def _rows_for(self, rows: int) -> int:
        return max(len(self._occupants), 1 << (rows - 1).bit_length())

    def _length_for(self, tokens: int) -> int:
        return room_for(max(tokens, SHORTEST), self.longest)


class Window(Cache):
    """What the model sees of the slots in one step: adjacent rows, each with one new token at its own position."""

    def __init__(self, layers: list[_Layer]) -> None:
        super().__init__(layers=[])
        self._slots = layers
        self.start = self.rows = self.end = 0
        self.positions = torch.zeros(0, dtype=torch.int64)
        self._row_index = self.positions
        self._kind = _Kind()  # type: ignore[no-untyped-call]
        self.lay(layers)

    def lay(self, layers: list[_Layer]) -> None:
        self._slots = layers
        self.layers = [self._kind] * max(1, len(layers))

    def open(self, start: int, positions: list[int]) -> None:
        device = next(layer.keys.device for layer in self._slots if layer.keys is not None)
        self.start, self.rows, self.end = start, len(positions), max(positions) + 1
        self.positions = torch.tensor(positions, device=device)
        self._row_index = torch.arange(self.rows, device=device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        layer = self._slots[layer_idx]
        assert layer.keys is not None and layer.values is not None
        keys = layer.keys[self.start : self.start + self.rows]
        values = layer.values[self.start : self.start + self.rows]
        keys[self._row_index, :, self.positions] = key_states[:, :, 0]
        values[self._row_index, :, self.positions] = value_states[:, :, 0]
        return keys[:, :, : self.end], values[:, :, : self.end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.end - 1

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.end, 0


NOT_ASKED = "a stand-in holds no keys and values: the window answers for every layer"


class _Kind(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Stands for a layer where transformers asks what kind it is; the window itself does the work."""

    is_sliding = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise AssertionError(NOT_ASKED)

    def update(self, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        raise AssertionError(NOT_ASKED)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        raise AssertionError(NOT_ASKED)

    def get_seq_length(self) -> int:
        raise AssertionError(NOT_ASKED)

    def get_max_length(self) -> int:
        return -1


class _Layer:
    """One block's rows. None where the sessions' part of the span does not have the block."""

    def __init__(self, keys: torch.Tensor | None, values: torch.Tensor | None) -> None:
        self.keys = _nothing_like(keys)
        self.values = _nothing_like(values)

    def grow(self, rows: int, length: int) -> None:
        self.keys, self.values = _larger(self.keys, rows, length), _larger(self.values, rows, length)

    def take(self, rows: list[int], keys: torch.Tensor | None, values: torch.Tensor | None, used: int) -> None:
        for mine, theirs in ((self.keys, keys), (self.values, values)):
            if mine is not None and theirs is not None:
                for place, row in enumerate(rows):
                    mine[row, :, :used] = theirs[place, :, :used]

    def clear(self, rows: list[int], start: int = 0) -> None:
        for mine in (self.keys, self.values):
            if mine is not None:
                for row in rows:
                    mine[row, :, start:] = 0

    def reorder(self, rows: list[int], order: torch.Tensor, used: int) -> None:
        for mine in (self.keys, self.values):
            if mine is not None:
                index = torch.tensor(rows, device=mine.device)
                mine[index, :, :used] = mine[index[order.to(mine.device)], :, :used]

    def swap(self, one: int, other: int, used: int) -> None:
        for mine in (self.keys, self.values):
            if mine is not None:
                kept = mine[one, :, :used].clone()
                mine[one, :, :used] = mine[other, :, :used]
                mine[other, :, :used] = kept


def _nothing_like(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.new_zeros((0, tensor.shape[1], 0, tensor.shape[3]))


def _larger(tensor: torch.Tensor | None, rows: int, length: int) -> torch.Tensor | None:
    if tensor is None:
        return None
    larger = tensor.new_zeros((rows, tensor.shape[1], length, tensor.shape[3]))
    larger[: tensor.shape[0], :, : tensor.shape[2]] = tensor
    return larger


def _own(tensor: torch.Tensor, rows: list[int], used: int, room: int) -> torch.Tensor:
    own = tensor.new_empty((len(rows), tensor.shape[1], room, tensor.shape[3]))
    for place, row in enumerate(rows):
        own[place, :, :used] = tensor[row, :, :used]
    return own


def _rows(cache: SessionCache) -> int:
    return next(memory.keys.shape[0] for memory in cache.memories if memory.keys is not None)


def _bytes_per_token(cache: SessionCache) -> int:
    """Of one row, in all its blocks."""
    return sum(
        tensor.shape[1] * tensor.shape[3] * tensor.itemsize
        for memory in cache.memories
        for tensor in (memory.keys, memory.values)
        if tensor is not None
    )
