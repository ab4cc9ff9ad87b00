"""One server of a chain, with all that went into it, and how other servers take over from it.

Knows one stream and its history, and whether the server before pushes to it; not routes, and not when to give up.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from blockserver.client.history import History
from blockserver.client.pace import Pace
from blockserver.client.stream import ServerStream, StepRequest
from blockserver.wire import protocol
from blockserver.wire.protocol import BlockInput
from swarm.errors import RemoteError
from swarm.routing import Hop
from swarm.wire.spans import Span

REPLAY_TOKENS = 1_024
"""Tokens of one replayed step, in all rows: short enough for other sessions on that server to get their turn in between."""

MOST_PUSHED_BYTES = 2**20
"""Servers push nothing longer on, but send it to the client only."""

MOST_MISSES = 2
"""Pushes in a row that did not come: after so many the client no longer waits for them, but sends each step itself."""

FIRST_GRACE_S = 0.5
"""How long to wait for a pushed step's answer before sending the step, until it is known how long that usually takes."""

LEAST_GRACE_S = 0.05
"""A step that is sent although its push was only a little late costs nothing but its bytes."""

Connect = Callable[[Hop], ServerStream]


class LinkFailed(RemoteError):
    """`link` did, while a history was being replayed."""

    def __init__(self, link: Link, error: RemoteError) -> None:
        super().__init__(str(error))
        self.link = link
        self.error = error


@dataclass(slots=True)
class Link:
    """One server of the chain and all that went into it."""

    hop: Hop
    connect: Connect
    stream: ServerStream = field(init=False)
    history: History = field(default_factory=History)
    last_output: torch.Tensor | None = None
    """Of the last step."""
    pusher: str | None = None
    """Who may push to it, as it was last told."""
    misses: int = 0
    after_push: Pace = field(default_factory=Pace)
    """From the answer of the server before to the one that follows from its push."""

    def __post_init__(self) -> None:
        self.stream = self.connect(self.hop)

    async def step(self, request: StepRequest, *, pushed_since: float | None = None) -> torch.Tensor:
        """`pushed_since` says that the server before hands the input on, and when the step through the chain began: then the
        input is sent from here only where that does not work."""
        if not self.stream.is_open and self.history.tokens:
            await self._catch_up()
        if pushed_since is None or self.misses >= MOST_MISSES or not await self._came_by_push():
            output = await self.stream.ask(request)
            self.pusher = request.push_from or self.pusher
        else:
            output = await self.stream.answer(request)
            if request.given.hidden.shape[1] == 1:
                # Longer than the server itself takes, which cannot be seen; but no step that is asked for takes longer.
                self.stream.pace.note(time.monotonic() - pushed_since)
        self.history.add(request.given)
        self.last_output = output
        return output

    def takes_push(self, sender: Hop, output: torch.Tensor) -> bool:
        return (
            self.stream.is_open
            and self.pusher == sender.peer_id
            and output.numel() * output.element_size() <= MOST_PUSHED_BYTES
        )

    def disconnect(self) -> None:
        """What is kept is replayed to the same server at the next step."""
        self.stream.abandon()
        self.stream = self.connect(self.hop)
        self.pusher = None

    async def _came_by_push(self) -> bool:
        grace_s = max(self.after_push.slow_s, LEAST_GRACE_S) if self.after_push.steps else FIRST_GRACE_S
        started = time.monotonic()
        came = await self.stream.comes_within(grace_s)
        if came:
            self.after_push.note(time.monotonic() - started)
        self.misses = 0 if came else self.misses + 1
        return came

    async def _catch_up(self) -> None:
        again = Link(self.hop, self.connect)
        await replay([again], self.history)
        self.stream, self.pusher = again.stream, None


async def replay(links: Sequence[Link], history: History) -> torch.Tensor | None:
    """All that is in `history` through new links in place of the one that it is of. The last output, if there is any.

    Raises LinkFailed; the links are closed then.
    """
    output = None
    batch = history.batch
    whole = Span(links[0].hop.span.start, links[-1].hop.span.end)
    for given in history.replay(max(REPLAY_TOKENS // max(batch, 1), 1)):
        output = given.hidden
        for link in links:
            try:
                output = await link.step(StepRequest(part_for(link, whole, given, output), str(uuid.uuid4())))
            except RemoteError as error:
                await close(links)
                raise LinkFailed(link, error) from error
            except BaseException:
                for one in links:
                    one.stream.abandon()
                raise
    return output


async def close(links: Sequence[Link]) -> None:
    await asyncio.gather(*(link.stream.close() for link in links))


def part_for(link: Link, whole: Span, given: BlockInput, hidden: torch.Tensor) -> BlockInput:
    """What one link gets of a step through `whole`."""
    return replace(given, hidden=hidden, prompts=_prompts_for(link.hop.span, whole, given.prompts))


def next_server(link: Link) -> protocol.NextServer:
    return protocol.NextServer(link.hop.peer_id, link.stream.session_id, link.hop.span)


def _prompts_for(span: Span, whole: Span, prompts: torch.Tensor | None) -> torch.Tensor | None:
    """Of deep prompts `[blocks of whole, …]` those of the blocks of `span`."""
    return None if prompts is None else prompts[span.start - whole.start : span.end - whole.start]
