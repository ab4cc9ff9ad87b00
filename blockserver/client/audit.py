"""A share of the steps is given to a second server too, and the answers are compared.

An audit says that two servers computed the same for what was drawn, and nothing about the rest: "audited", not "verified".
Where they differ, one of them computes something else, and it cannot be said which; both are named. It runs beside the
conversation and never changes it. Knows links and how to find another; not tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch

from blockserver.client.history import History
from blockserver.client.link import Link, LinkFailed, close, replay
from swarm.errors import LocalError, RemoteError
from swarm.routing import Candidate
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""How far two honest servers may differ, as a share of the hidden states' length: other kernels, other orders of summing."""
UNKNOWN_TOLERANCE = 5e-2
"""Where a server does not say how it computes."""

FindOthers = Callable[[Span, Collection[str]], Awaitable[list[Link]]]
"""Links for these blocks without those peers."""
About = Callable[[str], Candidate | None]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The evidence: what was computed by whom, and how far apart the answers are. `position` counts tokens before the step."""

    blocks: Span
    position: int
    peer: str
    others: tuple[str, ...]
    max_difference: float
    relative: float
    tolerance: float

    def in_words(self) -> str:
        return (
            f"{self.blocks.in_words()}, audited at token {self.position}: {self.peer} and {', '.join(self.others)} differ "
            f"by up to {self.max_difference:.3g} ({self.relative:.1%} of the size; {self.tolerance:.1%} may be rounding): "
            "one of them at least computes something else"
        )


@dataclass
class Audit:
    """`share` of the steps is audited, 0 to 1; one audit at a time. `passed` and `not_possible` count the others."""

    share: float
    seed: int | None = None
    passed: int = 0
    not_possible: int = 0
    """Nobody else held the blocks, the other one failed, or the two quantise differently."""
    disagreements: list[Disagreement] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise LocalError(f"the share of steps to audit is 0 to 1, not {self.share}")
        self._random = random.Random(self.seed)  # noqa: S311 - a server must not foresee it, and cannot see this process
        self._running: asyncio.Task[None] | None = None

    def consider(self, chain: Sequence[Link], tokens: int, find: FindOthers, about: About) -> None:
        """After a step of `tokens` tokens through `chain`: perhaps one of its links is audited."""
        if self._random.random() >= self.share or (self._running is not None and not self._running.done()):
            return
        link = self._random.choice(chain)
        if link.last_output is not None:
            work = self._audit(link, link.history.copy(), link.last_output, link.history.tokens - tokens, find, about)
            self._running = asyncio.create_task(work)

    async def finish(self, within_s: float = 0.0) -> None:
        """Lets the audit that runs come to its end, or gives it up."""
        running, self._running = self._running, None
        if running is not None:
            await asyncio.wait({running}, timeout=within_s)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def in_words(self) -> str:
        said = f"audited {self.passed + len(self.disagreements)} steps"
        return said + (
            f", {len(self.disagreements)} with disagreement" if self.disagreements else ", all agreed" * bool(self.passed)
        )

    async def _audit(
        self, link: Link, history: History, answered: torch.Tensor, position: int, find: FindOthers, about: About
    ) -> None:
        links: list[Link] = []
        try:
            links = await find(link.hop.span, {link.hop.peer_id})
            tolerance = tolerance_between([about(one.hop.peer_id) for one in (link, *links)])
            output = await replay(links, history) if tolerance is not None else None
        except (RemoteError, LinkFailed) as error:
            log.info("%s could not be audited: %s", link.hop.span.in_words(), error)
            self.not_possible += 1
            return
        finally:
            await close(links)
        if output is None or tolerance is None:
            self.not_possible += 1
            return
        tokens = min(output.shape[1], answered.shape[1])
        most, relative = difference(answered[:, -tokens:], output[:, -tokens:])
        if relative <= tolerance:
            self.passed += 1
            return
        others = tuple(one.hop.peer_id for one in links)
        found = Disagreement(link.hop.span, position, link.hop.peer_id, others, most, relative, tolerance)
        log.warning("%s", found.in_words())
        self.disagreements.append(found)


def difference(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """Of hidden states `[batch, tokens, hidden]`: a value's largest, and a token's largest as a share of its length."""
    apart = (one - other).float()
    lengths = one.float().norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    return float(apart.abs().max()), float((apart.norm(dim=-1) / lengths).max())


def tolerance_between(servers: Sequence[Candidate | None]) -> float | None:
    """None where they cannot be compared: blocks quantised in another way are another model."""
    known = [server for server in servers if server is not None]
    if len({server.quant_type or "none" for server in known}) > 1:
        return None
    tolerances = [TOLERANCES.get(server.dtype or "", UNKNOWN_TOLERANCE) if server else UNKNOWN_TOLERANCE for server in servers]
    return max(tolerances)
