"""What transformers takes for a cache: the keys and values are the servers', here is only where they stand.

Generation asks it for a length, to change places of rows (beam search) and to forget last tokens (assisted generation). Knows
rows, padding and sessions; not tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import Cache

from blockserver.client.auto.lanes import Lane
from blockserver.client.auto.rows import Rows, left_padding, put_back, take, together, within
from blockserver.client.inspect.walk import Stops, cut, walk
from blockserver.client.training.gradients import Runs
from swarm.errors import LocalError
from swarm.routing import Route
from swarm.wire.spans import Span

OpenLane = Callable[[int, tuple[Span, ...]], Lane]
"""Tokens of the session, and the runs of blocks between which hidden states come back -> sessions that open when stepped."""


@dataclass
class _Group:
    """Rows with the same padding and their sessions."""

    rows: Rows
    lane: Lane


class RemoteCache(Cache):
    """Sessions on the servers of all blocks, opened by the first step. `close` it, or the servers wait for it in vain.

    `max_length` is in tokens, padding included; None until generation says it.
    """

    def __init__(self, runs: Runs, whole: Span, open_lane: OpenLane, max_length: int | None = None) -> None:
        super().__init__(layers=[])
        self.max_length = max_length
        self.columns = 0
        """Tokens of each row so far, its padding included; prompts that were learned are not counted."""
        self.prefix = 0
        """Positions before the first column: learned prompts."""
        self._runs = runs
        self._whole = whole
        self._open_lane = open_lane
        self._groups: list[_Group] = []
        self._parts: tuple[Span, ...] = ()
        self._order: torch.Tensor | None = None
        self._closed = False

    # ------------------------------------------------------------------------------------------ what transformers asks

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.columns

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1 if self.max_length is None else self.max_length

    @property
    def is_linear(self) -> list[bool]:
        """An empty list would read as "all layers are"."""
        return [False]

    @property
    def batch_size(self) -> int:
        return sum(len(group.rows.indices) for group in self._groups) or -1

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Servers are told with the next step."""
        order = beam_idx.to("cpu", torch.int64)
        self._order = order if self._order is None else self._order[order]

    def crop(self, tokens_to_remove: int) -> None:
        """Forgets that many of the last tokens, given as a negative number as transformers does."""
        removed = abs(tokens_to_remove)
        if removed > self.columns:
            raise LocalError(f"{removed} tokens cannot be taken from a cache of {self.columns}")
        self.columns -= removed
        if not self.columns:
            self._end()  # what comes next is a first step again, with learned prompts and perhaps other rows
        elif removed:
            for group in self._groups:
                group.lane.rollback(group.lane.position - removed)

    def reset(self) -> None:
        self.crop(-self.columns)

    def batch_repeat_interleave(self, repeats: int) -> None:
        raise LocalError("the rows of an open session cannot be multiplied; multiply those of the prompt")

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        raise LocalError("rows cannot be taken out of an open session")

    # --------------------------------------------------------------------------------------------------- what we ask

    @property
    def route(self) -> Route:
        """The servers in use, in order; of the first rows where rows of different padding go apart."""
        return self._groups[0].lane.route if self._groups else ()

    @property
    def recoveries(self) -> int:
        """How often a server was replaced."""
        return sum(session.recoveries for group in self._groups for session in group.lane.sessions.values())

    def walk(
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        stops: Stops,
        prefix: int = 0,
        prompts: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Hidden states `[batch, prefix + new columns, hidden]` through all blocks; see `inspect.walk`.

        `mask` `[batch, columns so far and new]`. `prefix` and deep `prompts` `[blocks, batch, prefix, hidden]` are the first
        step's. No gradients. LocalError where the padding, the rows or the boundaries are not those of the first step.
        """
        if self._closed:
            raise LocalError("the cache was closed; keep one over several calls with `model.inference_session`")
        batch, new = hidden.shape[0], hidden.shape[1] - prefix
        padding = left_padding(mask, batch, self.columns + new, right_allowed=False)
        parts = cut(self._whole, stops)
        if not self._groups:
            self._open(padding, parts, prefix)
        self._check(padding, parts)
        first = not self.columns

        def through(part: Span, given: torch.Tensor) -> torch.Tensor:
            return self._runs.run(self._step(part, given, prefix, prompts, first=first))

        with self._all_or_nothing():
            walked = walk(hidden, parts, through, stops)
        self.columns += new
        self._order = None
        return walked

    def close(self) -> None:
        """May be called twice."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        groups, self._groups = self._groups, []
        if groups and not self._runs.closed:
            self._runs.run(_close(groups))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A step that some sessions have done and others not is undone; one that moved rows cannot be."""
        before = [group.lane.position for group in self._groups]
        try:
            yield
        except BaseException:
            if self._order is not None or not self.columns:
                self._end()
            else:
                for group, position in zip(self._groups, before, strict=True):
                    group.lane.rollback(position)
            self._closed = self._closed or self._order is not None
            raise

    def _open(self, padding: tuple[int, ...], parts: tuple[Span, ...], prefix: int) -> None:
        if self.max_length is None:
            raise LocalError("how long the session may become is not known: give max_length")
        self.prefix, self._parts = prefix, parts
        length = self.max_length + prefix
        self._groups = [_Group(rows, self._open_lane(length - rows.padding, parts)) for rows in together(padding)]

    def _check(self, padding: tuple[int, ...], parts: tuple[Span, ...]) -> None:
        if together(padding) != tuple(group.rows for group in self._groups):
            raise LocalError("the rows or their padding are not those that the session was begun with")
        if parts != self._parts:
            raise LocalError(
                "a session keeps the boundaries at which it was begun: of edits, and of hidden states that are wanted"
            )

    async def _step(
        self, part: Span, hidden: torch.Tensor, prefix: int, prompts: torch.Tensor | None, *, first: bool
    ) -> torch.Tensor:
        rows = [Rows(group.rows.indices, group.rows.padding if first else 0) for group in self._groups]
        outputs = await asyncio.gather(
            *(
                group.lane.step(
                    part,
                    take(hidden, own, prefix),
                    None if self._order is None else within(self._order, group.rows),
                    None if prompts is None else prompts[:, list(own.indices)],
                )
                for group, own in zip(self._groups, rows, strict=True)
            )
        )
        return put_back(outputs, rows, hidden.shape[0], prefix)


async def _close(groups: list[_Group]) -> None:
    await asyncio.gather(*(group.lane.close() for group in groups))
