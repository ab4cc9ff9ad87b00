"""Where should this server serve? The coordinator's lease where there is one; the same planner on this server's own view of
the DHT while the coordinator is silent, or where none is set. The server always decides, and says who decided and why.

Of several models an arriving server chooses by the same rule with a coordinator and without. A serving one changes its model
for a lease only: whether its model can spare it, and whether another server is on its way to the same hole, it cannot see.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from blockserver.serving.hint_client import CoordinatorDown, HintClient
from swarm.placement import Demand, Pace, Placement, advise, choose_model, choose_span, find_holes, mend, without
from swarm.placement.fleet import why_chosen
from swarm.snapshot import Model
from swarm.wire.hints import HintRequest, LeaseDocument, OtherModel, ReasonCode, SpanDocument
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

BY_COORDINATOR = "the coordinator"
BY_ITSELF = "this server"
BY_OPERATOR = "the operator"
SILENT_POLLS = 3
"""One lost answer, or two, is no silence."""
FALLBACK_JITTER = 2 / 3
"""Share of the waiting time that is added at random: servers that lost the same coordinator do not all move in one second."""
_USUAL = (ReasonCode.NOTHING_NEEDED, ReasonCode.LEASE_OPEN, ReasonCode.SCARCE, ReasonCode.TOO_SOON)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model that this server could serve. `view` reads the DHT and gives it as this server sees it, announcements believed;
    `pace` is how fast this server is with it, as far as it knows."""

    prefix: str
    num_blocks: int
    view: Callable[[], Awaitable[Model]]
    pace: Callable[[], Pace | None] = lambda: None


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
    _silent_since: float | None = field(default=None, init=False)
    _silent_polls: int = field(default=0, init=False)
    _patience_s: float = field(default=0.0, init=False)
    _last_words: str = field(default="", init=False)
    _finding: _Finding | None = field(default=None, init=False)

    async def arrive(self, *, alone: bool = False) -> Decision:
        """The first span of a server that serves nothing yet; `alone` does not ask the coordinator."""
        decision = await self._ask(self.candidates[0], None, 0) if self.hints and not alone else None
        if decision is not None:
            return decision
        views = [without(await candidate.view(), self.peer_id) for candidate in self.candidates]
        sizes = [candidate.num_blocks for candidate in self.candidates]
        # How much each is asked for is not seen from here: all count the same.
        ranking = choose_model(Demand(view, 1.0, size) for view, size in zip(views, sizes, strict=True))
        best = self._candidate(ranking[0].prefix)
        view = next(view for view in views if view.prefix == best.prefix)
        placement = choose_span(view, best.num_blocks, pace=best.pace())
        if len(ranking) > 1:
            placement = replace(placement, reason=why_chosen(ranking))
        return Decision(best.prefix, placement, BY_ITSELF)

    async def reconsider(self, prefix: str, serving: Span, sessions_active: int = 0) -> Decision | None:
        """A better span than the one served, of the same model or of another one; None to stay."""
        present = self._candidate(prefix)
        if self.hints is not None:
            decision = await self._ask(present, serving, sessions_active)
            if self._silent_since is None:
                return decision
            if self._silent_polls < SILENT_POLLS or self.clock() - self._silent_since < self._patience_s:
                return None
        return await self._decide_alone(present, serving)

    def _candidate(self, prefix: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.prefix == prefix)

    async def _ask(self, present: Candidate, serving: Span | None, sessions_active: int) -> Decision | None:
        assert self.hints is not None
        pace = present.pace()
        others = (candidate for candidate in self.candidates if candidate is not present)
        request = HintRequest(
            peer=self.peer_id,
            model=present.prefix,
            num_blocks_max=present.num_blocks,
            num_blocks=len(serving) if serving else present.num_blocks,
            current=SpanDocument(start=serving.start, end=serving.end) if serving else None,
            sessions_active=sessions_active,
            forward_rps=pace.forward_rps if pace else None,
            network_rps=pace.network_rps if pace else None,
            also=tuple(OtherModel(model=other.prefix, num_blocks_max=other.num_blocks) for other in others),
        )
        try:
            answer = await self.hints.ask(request)
        except CoordinatorDown as error:
            self._note_silence(error, serving)
            return None
        if self._silent_since is not None:
            log.info("the coordinator answers again")
        self._silent_since, self._silent_polls, self._finding = None, 0, None
        if answer.no_lease_because:
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
        self._last_words = ""
        placement = Placement(answer.lease.to_span(), answer.reason_code, answer.reason)
        return Decision(answer.lease.model, placement, BY_COORDINATOR, answer.lease)

    async def _decide_alone(self, present: Candidate, serving: Span) -> Decision | None:
        """The planner's answer on this server's own view, once it has stood for `confirm_s`: a single view may be wrong."""
        model = await present.view()
        if model.unread_blocks:
            self._say("staying: the DHT could not be read whole")
            return None
        now = self.clock()
        holes = frozenset(block for hole in find_holes(model) for block in hole) if mend(model) else frozenset()
        if self._finding is None or not holes or holes != self._finding.holes:
            self._finding = _Finding(holes, now) if holes else None
        if self._finding is None:
            return None
        movable = self._finding.movable(model, now, self.confirm_s)
        advice = advise(model, self.peer_id, len(serving), serving=serving, movable=movable)
        if advice.placement is None or advice.reason_code not in (ReasonCode.HOLE, ReasonCode.CHAIN):
            self._say(f"staying: {advice.reason}")
            return None
        if now - self._finding.since < self.confirm_s:
            self._say(f"{advice.reason}; looking again in {self.confirm_s:g} s before moving")
            return None
        self._finding = None
        return Decision(present.prefix, advice.placement, BY_ITSELF)

    def _note_silence(self, error: CoordinatorDown, serving: Span | None) -> None:
        self._silent_polls += 1
        if self._silent_since is None:
            self._silent_since = self.clock()
            self._patience_s = self.fallback_after_s * (1.0 + self.jitter())
            then = f"staying; deciding by itself from {self._patience_s:.0f} s on" if serving else "deciding by itself"
            log.warning("no hint: %s; this server is %s", error, then)

    def _say(self, words: str) -> None:
        """Once, until something else is said: the question is asked every few seconds."""
        if words != self._last_words:
            self._last_words = words
            log.info(words)


@dataclass
class _Finding:
    """Holes that this server sees by itself, since when, and who had the chance to fill them and did not."""

    holes: frozenset[int]
    since: float
    passed_over: set[str] = field(default_factory=set)

    def movable(self, model: Model, now: float, patience_s: float) -> frozenset[str]:
        """All servers but those whose turn has passed: the planner's first choice may be one that does not follow our rule,
        such as a Petals server. Its turn lasts twice the time after which it would have moved."""
        everyone = frozenset(server.peer_id for server in model.servers)
        turns_over = int((now - self.since) / (2 * patience_s))
        while len(self.passed_over) < turns_over:
            chosen = next((move.peer_id for move in mend(model, movable=everyone - self.passed_over)), None)
            if chosen is None:
                break
            self.passed_over.add(chosen)
        return everyone - self.passed_over
