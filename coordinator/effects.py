"""What a server more or less would do to a model, in figures and words. Pure; coverage does the counting.

Everything that asks "what if" comes here: hint cards, explained hints, the what-if page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from swarm.coverage import Coverage, Verdict, coverage
from swarm.placement import Circumstances, Placement, Promise, choose_span, without
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span, in_words

NEWCOMER = "a new server"
"""Stands for a peer that does not exist yet; no peer id looks like this."""
NOTHING = "nothing changes"


@dataclass(frozen=True, slots=True)
class Effect:
    """The model before and after."""

    before: Coverage
    after: Coverage

    @property
    def words(self) -> str:
        return "; ".join([*self._running(), *self._redundancy(), *self._slowest()]) or NOTHING

    def _running(self) -> list[str]:
        was, now = self.before.verdict, self.after.verdict
        if was is Verdict.BROKEN and now is Verdict.UNKNOWN:
            return [f"no block is known to be missing any more; {self.after.sentence().removeprefix('unknown: ')}"]
        if was is Verdict.BROKEN and now is not Verdict.BROKEN:
            return ["the model runs again"]
        if was is not Verdict.BROKEN and now is Verdict.BROKEN:
            return [f"the model stops: {in_words(self.after.holes)} would have no server"]
        if now is Verdict.BROKEN and self.before.holes != self.after.holes:
            return [f"still missing: {in_words(self.after.holes)}"]
        return []

    def _redundancy(self) -> list[str]:
        was, now = self.before.min_redundancy, self.after.min_redundancy
        if was is None or now is None or was == now:
            return self._thin()
        return [f"lowest redundancy {was} → {now}"]

    def _thin(self) -> list[str]:
        # A block of which nothing was known before has not got thin by what comes to it.
        known = {block.index for block in self.before.blocks if block.redundancy is not None}
        was, now = (len({b for span in cover.thin for b in span} & known) for cover in (self.before, self.after))
        return [f"blocks with only one server {was} → {now}"] if was != now else self._together()

    def _together(self) -> list[str]:
        was, now = (sum(map(len, cover.together)) for cover in (self.before, self.after))
        return [f"blocks whose servers go down together {was} → {now}"] if was != now else []

    def _slowest(self) -> list[str]:
        # Without a server for some block nothing flows, so there is no slowest block to speak of.
        if Verdict.BROKEN in (self.before.verdict, self.after.verdict):
            return []
        was, now = self.before.bottleneck, self.after.bottleneck
        if was is None or now is None or was.throughput == now.throughput:
            return []
        return [f"slowest block {was.throughput:,.0f} → {now.throughput:,.0f} tok/s"]


def effect_of(before: Model, after: Model, rates: Mapping[str, float] | None = None) -> Effect:
    """`rates` are the believed ones, by peer id, as in `swarm.coverage`."""
    return Effect(coverage(before, rates), coverage(after, rates))


def joined(model: Model, peer_id: str, span: Span, throughput: float | None = None) -> Model:
    """The model with this server online there, and nowhere else. Its own throughput is kept where it is known."""
    known = next((server for server in model.servers if server.peer_id == peer_id), None)
    record = known.record if known else ServerRecord(ServerState.ONLINE, throughput, span)
    moved = Server(peer_id, span, PeerState.ONLINE, record, expires_at=known.expires_at if known else 0.0)
    return replace(without(model, peer_id), servers=(*without(model, peer_id).servers, moved))


def placements(
    model: Model,
    num_blocks: int,
    promises: Iterable[Promise],
    peer_id: str = NEWCOMER,
    limit: int = 5,
    known: Circumstances | None = None,
) -> list[Placement]:
    """Where a server of this size helps most, then where the next one would, and so on: the planner's own answers, from what it
    is told when it gives hints."""
    rest = without(model, peer_id)
    rate = known.rates.get(peer_id) if known else None
    kept = list(promises)
    found: list[Placement] = []
    for turn in range(2 * limit):
        placement = choose_span(rest, num_blocks, kept, known=known, rate=rate)
        if placement.span not in [other.span for other in found]:
            found.append(placement)
        if len(found) == limit:
            break
        kept.append(Promise(f"{NEWCOMER} {turn}", placement.span))
    return found
