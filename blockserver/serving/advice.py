"""Where should this server serve? The coordinator's lease where there is one; the same planner on this server's own view of
the DHT while the coordinator is silent, or where none is set. The server always decides, and says who decided and why.

Of several models an arriving server chooses by the same rule with a coordinator and without. A serving one changes its model
for a lease only: whether its model can spare it, and whether another server is on its way to the same hole, it cannot see.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from blockserver.serving.conduct import misfit
from blockserver.serving.hint_client import Busy, CoordinatorDown, HintClient
from blockserver.serving.leasing import Leases
from blockserver.serving.own_balance import BALANCE_ALONE_AFTER_S, OwnBalance
from blockserver.serving.own_view import Finding, advise_alone, mendable
from blockserver.serving.polling import LEAST_S
from blockserver.serving.silence import Silence
from swarm.placement import Demand, Pace, Placement, choose_model, choose_span, without
from swarm.placement.fleet import why_chosen
from swarm.snapshot import Model
from swarm.wire.hints import MOST_ON_DISK, HintRequest, LeaseDocument, OtherModel, ReasonCode, SpanDocument
from swarm.wire.spans import Span, suffixes

log = logging.getLogger(__name__)

BY_COORDINATOR = "the coordinator"
BY_ITSELF = "this server"
BY_OPERATOR = "the operator"
FALLBACK_JITTER = 2 / 3
"""Share of the waiting time that is added at random: servers that lost the same coordinator do not all move in one second."""
ARRIVAL_PATIENCE_S = 60.0
"""Of a server that serves nothing yet, for a lease that it is told to wait for: it loads for minutes afterwards."""
_NOT_SEEN = (ReasonCode.BLIND, ReasonCode.UNKNOWN_MODEL)
"""No advice: the coordinator answers, and does not see this model."""
_USUAL = (ReasonCode.NOTHING_NEEDED, ReasonCode.LEASE_OPEN, ReasonCode.SCARCE, ReasonCode.TOO_SOON)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model that this server could serve: `num_blocks` of its `whole` blocks. `view` reads the DHT and gives it as this
    server sees it, announcements believed; `pace` is how fast this server is with it, `load_s` how long it loads so many
    blocks, as far as it knows; `on_disk` are the blocks that need no download."""

    prefix: str
    num_blocks: int
    whole: int
    view: Callable[[], Awaitable[Model]]
    pace: Callable[[], Pace | None] = lambda: None
    load_s: Callable[[int], float | None] = lambda _: None
    on_disk: Callable[[], tuple[Span, ...]] = tuple


@dataclass(frozen=True, slots=True)
class Decision:
    prefix: str
    placement: Placement
    decided_by: str
    lease: LeaseDocument | None = None

    def __str__(self) -> str:
        return f"{self.placement.span.in_words()}, decided by {self.decided_by}: {self.placement.reason}"


@dataclass
class Adviser:
    """`candidates` are all models that the operator offers, the first choice first. `clock` is in seconds."""

    peer_id: str
    candidates: tuple[Candidate, ...]
    hints: HintClient | None
    fallback_after_s: float
    confirm_s: float
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = lambda: random.uniform(0.0, FALLBACK_JITTER)  # noqa: S311
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[float, float], float] = random.uniform
    retry_after_s: float | None = field(default=None, init=False)
    """When the coordinator said that asking again makes sense; None where it said nothing."""
    _lease_after_s: float | None = field(default=None, init=False)
    _silence: Silence = field(init=False)
    _leases: Leases = field(init=False)
    _last_words: str = field(default="", init=False)
    _finding: Finding | None = field(default=None, init=False)
    _balance: OwnBalance = field(init=False)

    def __post_init__(self) -> None:
        self._balance = OwnBalance(self.peer_id, self.confirm_s, self.draw)
        self._silence = Silence(self.fallback_after_s)
        self._leases = Leases(self.hints, self.peer_id)

    async def arrive(self, *, alone: bool = False) -> Decision:
        """The first span of a server that serves nothing yet; `alone` does not ask the coordinator."""
        decision = await self._ask_until_there_is_a_lease() if self.hints and not alone else None
        if decision is not None:
            return decision
        views = [without(await candidate.view(), self.peer_id) for candidate in self.candidates]
        # How much each is asked for is not seen from here: all count the same.
        ranking = choose_model(
            Demand(view, 1.0, candidate.num_blocks, on_disk=suffixes(candidate.on_disk(), view.num_blocks))
            for view, candidate in zip(views, self.candidates, strict=True)
        )
        best = self._candidate(ranking[0].prefix)
        view = next(view for view in views if view.prefix == best.prefix)
        placement = choose_span(view, best.num_blocks, pace=best.pace(), on_disk=suffixes(best.on_disk(), view.num_blocks))
        if len(ranking) > 1:
            placement = replace(placement, reason=why_chosen(ranking))
        return Decision(best.prefix, placement, BY_ITSELF)

    async def reconsider(self, prefix: str, serving: Span, sessions_active: int = 0) -> Decision | None:
        """A better span than the one served, of the same model or of another one; None to stay."""
        present = self._candidate(prefix)
        self._balance.note(prefix, serving, self.clock())
        if self.hints is not None:
            decision = await self._ask(present, serving, sessions_active)
            if not self._silence.lasts:
                self._balance.rest()
                return decision
            if not self._silence.is_over(self.clock()):
                return None
        return await self._decide_alone(present, serving, sessions_active)

    def _candidate(self, prefix: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.prefix == prefix)

    async def _ask_until_there_is_a_lease(self) -> Decision | None:
        """Where there is none for the moment: to decide alone would be to decide without knowing what others were promised."""
        waited = 0.0
        while (decision := await self._ask(self.candidates[0], None, 0)) is None:
            if self._lease_after_s is None:
                return None
            pause_s = max(LEAST_S, self._lease_after_s)
            if waited + pause_s > ARRIVAL_PATIENCE_S:
                return None
            waited += pause_s
            await self.sleep(pause_s)
        return decision

    async def _ask(self, present: Candidate, serving: Span | None, sessions_active: int) -> Decision | None:
        assert self.hints is not None
        request = self._question(present, serving, sessions_active)
        self.retry_after_s = self._lease_after_s = None
        try:
            answer = await self.hints.ask(request)
        except CoordinatorDown as error:
            self._note_no_answer(error, serving)
            return None
        self.retry_after_s = answer.retry_after_s
        if answer.reason_code in _NOT_SEEN:
            self._note_silence(answer.reason, serving, blind=True)
            return None
        if self._silence.end():
            log.info("the coordinator advises again")
            self._last_words = ""
        self._finding = None
        if answer.no_lease_because:
            self._lease_after_s = answer.lease_after_s
            self._say(f"no lease, says the coordinator: {answer.no_lease_because}")
            return None
        if answer.lease is None:
            # That nothing is needed is the normal case, and not worth a line every time.
            if serving is None or answer.reason_code not in _USUAL:
                self._say(f"staying, says the coordinator: {answer.reason}" if serving else f"no hint: {answer.reason}")
            return None
        if answer.lease.model not in request.offered:
            self._say(f"the coordinator names {answer.lease.model}, which this server does not offer; passing it over")
            return None
        wanted, span = self._candidate(answer.lease.model), answer.lease.to_span()
        if why := misfit(span, wanted.num_blocks, wanted.whole):
            await self._leases.decline(answer.lease, why)
            return None
        self._last_words = ""
        placement = Placement(span, answer.reason_code, answer.reason)
        return Decision(wanted.prefix, placement, BY_COORDINATOR, answer.lease)

    def _note_no_answer(self, error: CoordinatorDown, serving: Span | None) -> None:
        self.retry_after_s = error.retry_after_s
        if not isinstance(error, Busy):
            self._note_silence(str(error), serving)
            return
        # It is there: to move without it now would be to move with all the others that it told the same.
        again_s = self.retry_after_s = self._lease_after_s = error.told_s * (1.0 + self.jitter())
        if serving is None:
            self._say(f"{error}; asking again in {again_s:.0f} s")
        else:
            self._note_silence(str(error), serving, blind=True)

    def _question(self, present: Candidate, serving: Span | None, sessions_active: int) -> HintRequest:
        pace = present.pace()
        size = len(serving) if serving else present.num_blocks
        others = (candidate for candidate in self.candidates if candidate is not present)
        # A serving server moves for what others lack; only an arriving one has the choice of what it has already.
        kept = _told(present.on_disk()) if serving is None else ()
        return HintRequest(
            peer=self.peer_id,
            model=present.prefix,
            num_blocks_max=present.num_blocks,
            num_blocks=size,
            current=SpanDocument.of(serving) if serving else None,
            sessions_active=sessions_active,
            est_load_s=present.load_s(size),
            forward_rps=pace.forward_rps if pace else None,
            network_rps=pace.network_rps if pace else None,
            also=tuple(
                OtherModel(model=other.prefix, num_blocks_max=other.num_blocks, on_disk=_told(other.on_disk()))
                for other in others
            ),
            on_disk=kept,
        )

    async def _decide_alone(self, present: Candidate, serving: Span, sessions_active: int) -> Decision | None:
        """The planner's answer on this server's own view, once it has stood for `confirm_s`: a single view may be wrong."""
        model = await present.view()
        if model.unread_blocks:
            self._say("staying: the DHT could not be read whole")
            return None
        now = self.clock()
        holes = mendable(model)
        if self._finding is None or not holes or holes != self._finding.holes:
            self._finding = Finding(holes, now) if holes else None
        if self._finding is None:
            return self._balance_alone(model, serving, sessions_active, now)
        movable = self._finding.movable(model, now, self.confirm_s)
        advice = advise_alone(model, self.peer_id, serving, present.num_blocks, movable)
        if advice.placement is None or advice.reason_code not in (ReasonCode.HOLE, ReasonCode.CHAIN):
            self._say(f"staying: {advice.reason}")
            return None
        if now - self._finding.since < self.confirm_s:
            self._say(f"{advice.reason}; looking again in {self.confirm_s:g} s before moving")
            return None
        self._finding = None
        return Decision(present.prefix, advice.placement, BY_ITSELF)

    def _balance_alone(self, model: Model, serving: Span, sessions_active: int, now: float) -> Decision | None:
        """Where nothing is missing: as the coordinator would ask it to, and no sooner than it has been missed for long."""
        alone_s = self._balance.here_s(now) if self.hints is None else self._silence.lasted_s(now)
        if alone_s < BALANCE_ALONE_AFTER_S or not self._balance.is_due(now):
            return None
        if sessions_active:
            self._balance.intended = None
            return None
        move = self._balance.look(model, serving, now)
        if move is not None:
            return Decision(model.prefix, move.placement, BY_ITSELF)
        if (intended := self._balance.intended) is not None:
            again_s = self._balance.confirms_in_s(now)
            self._say(f"{intended.reason}; looking again in {again_s:.0f} s before moving to {intended.target.in_words()}")
        return None

    def _note_silence(self, why: str, serving: Span | None, *, blind: bool = False) -> None:
        if self._silence.note(self.clock(), self.jitter, blind=blind):
            wait = f"staying; deciding by itself from {self._silence.patience_s:.0f} s on"
            log.warning("no hint: %s; this server is %s", why, wait if serving else "deciding by itself")

    def _say(self, words: str) -> None:
        """Once, until something else is said: the question is asked every few seconds."""
        if words != self._last_words:
            self._last_words = words
            log.info(words)


def _told(spans: tuple[Span, ...]) -> tuple[SpanDocument, ...]:
    """The longest, where there are more than are told."""
    return tuple(SpanDocument.of(span) for span in sorted(spans, key=len, reverse=True)[:MOST_ON_DISK])
