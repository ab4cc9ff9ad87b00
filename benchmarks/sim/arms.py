"""Who decides: Petals' servers each for themselves, or the product's planner with promises, for those that follow it.

The planner is `swarm.placement` itself, with `swarm.throughput` where reports are not believed, and leases live by
`coordinator.lease_terms`. An offer reaches the server at its next question, up to a minute later, and is checked once more
before the server leaves its blocks; while that loads it reports, so that a lease whose server dies stands until it runs out.
While the coordinator is down it sees and measures nothing, and servers decide by themselves (`alone`).
Not simulated: the database in which leases are kept, and HTTP.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from benchmarks.sim import petals
from benchmarks.sim.alone import LoneServers
from benchmarks.sim.traces import HOUR, WARM_UP_S, Scene
from benchmarks.sim.world import Server, World
from coordinator.lease_terms import End, Held, accepted, end_of, is_slow, offered, pause_after, promised, reloads, renewed
from swarm.placement import Circumstances, Move, Promise, choose_span, plan, still_useful
from swarm.snapshot import Model, PeerState
from swarm.snapshot import Server as Seen
from swarm.throughput import Evidence, believed_rates
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

TICK_S, POLL_S, REPLAN_S = 30.0, 60.0, 120.0
CHECK_S, HESITATION_S = 240.0, 10.0
FALLBACK_S = 240.0
"""A coordinator silent for 180 s and, in the middle, a minute more, which is drawn: then servers repair holes by themselves."""
NOISE = 0.25
KEPT_MEASUREMENTS = 5
LAST_LOADS = 21
BELIEFS = ("reported", "guarded", "measured")
"""Reports as they are; compared with each other (`swarm.throughput` without evidence); compared with measured rates."""


class PetalsArm:
    """Everybody by Petals' rule. Also what those do in other arms who do not follow hints."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self._draw = world, random.Random(f"petals {seed}")
        self._seen: tuple[int, list[petals.Seat], list[float]] = (-1, [], [])
        self._ideal: tuple[int, float] = (-1, 0.0)
        world.on_arrival = self.arrive
        world.on_online = self.online

    def arrive(self, server: Server) -> None:
        if self.world.now == 0.0:
            self._take_place(server)
        else:
            self.world.at(self.world.now + server.draw.uniform(0, HESITATION_S), lambda: self._take_place(server))

    def online(self, server: Server) -> None:
        life = server.life
        self.world.at(self.world.now + server.draw.uniform(0, CHECK_S), lambda: self._check(server, life))

    def _take_place(self, server: Server) -> None:
        if server.alive:
            size = server.host.blocks
            self.world.load(server, petals.best_start(self._totals(), size), size, ready=self.world.now == 0.0)

    def _check(self, server: Server, life: int) -> None:
        if not server.alive or server.life != life or not server.online:
            return
        totals, seat = self._totals(), (server.start, server.size, server.reported)
        hopeless = min(totals) >= petals.QUALITY * sum(totals) / len(totals)
        if not hopeless and petals.wants_to_move(totals, seat, self._settled):
            self.world.at(self.world.now + server.draw.uniform(0, HESITATION_S), lambda: self._rechoose(server, life))
        else:
            self.world.at(self.world.now + server.draw.uniform(0, CHECK_S), lambda: self._check(server, life))

    def _rechoose(self, server: Server, life: int) -> None:
        if not server.alive or server.life != life:
            return
        end = server.start + server.size
        totals = [v - server.reported if server.start <= b < end else v for b, v in enumerate(self._totals())]
        self.world.move(server, petals.best_start([max(v, 0.0) if v > 1e-9 else 0.0 for v in totals], server.size), server.size)

    def _totals(self) -> list[float]:
        if self._seen[0] != self.world.version:
            seats = [(s.start, s.size, s.reported) for s in self.world.servers if s.listed]
            self._seen = (self.world.version, seats, petals.totals(seats, self.world.scene.blocks))
        return self._seen[2]

    def _settled(self) -> float:
        self._totals()
        if self._ideal[0] != self._seen[0]:
            ideal = petals.settled(self._seen[1], self.world.scene.blocks, self._draw)
            self._ideal = (self._seen[0], max(ideal, 1e-9))
        return self._ideal[1]


@dataclass
class CoordinatorArm:
    """The product's planner for those that follow, Petals' rule for the others."""

    world: World
    seed: int
    belief: str = "reported"
    _leases: dict[str, Held] = field(default_factory=dict)
    _unfollowed: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By server: hints that it let lapse since it last followed one, and when it is asked again."""
    _loads: list[float] = field(default_factory=list)
    _measured: dict[str, list[float]] = field(default_factory=dict)
    _shown: dict[str, tuple[tuple[int, int, bool], Seen]] = field(default_factory=dict)
    _planned: tuple[int, float] = (-1, -1e9)

    def __post_init__(self) -> None:
        self._others = PetalsArm(self.world, self.seed)
        self._alone = LoneServers(self.world, self._show)
        self.world.on_arrival, self.world.on_online, self.world.on_gone = self._arrive, self._online, self._gone
        self.world.at(0.0, self._tick)

    def _arrive(self, server: Server) -> None:
        if not server.host.follows:
            self._others.arrive(server)
            return
        if self._silent_s():
            self._alone.arrive(server)
            return
        known, model = self._known(), self._model()
        rate = server.reported
        if self.belief != "reported" and known.rates:
            rate = min(rate, median(known.rates.values()))
        span = choose_span(model, server.host.blocks, self._promises(model), known=known, rate=rate).span
        self.world.load(server, span.start, len(span), ready=self.world.now == 0.0)

    def _online(self, server: Server) -> None:
        if server.host.name not in self._measured:
            self._measured[server.host.name] = []
            self.world.at(self.world.now + server.draw.uniform(0, 600), lambda: self._measure(server))
        if not server.host.follows:
            self._others.online(server)

    def _gone(self, server: Server) -> None:
        for kept in (self._measured, self._shown, self._unfollowed):
            kept.pop(server.host.name, None)

    def _measure(self, server: Server) -> None:
        figures = self._measured.get(server.host.name)
        if not server.alive or figures is None:
            return
        if server.online and not self._silent_s() and not (server.host.liar and self.world.scene.evades):
            figures.append(server.host.rate * server.draw.lognormvariate(0, NOISE))
            del figures[:-KEPT_MEASUREMENTS]
        self.world.at(self.world.now + server.draw.uniform(0.5, 1.5) * HOUR, lambda: self._measure(server))

    def _tick(self) -> None:
        self.world.at(self.world.now + TICK_S, self._tick)
        if silent := self._silent_s():
            if silent >= FALLBACK_S:
                self._alone.look(silent)
            return
        self._alone.rest()
        self._settle()
        version, when = self._planned
        if version == self.world.version and self.world.now - when < REPLAN_S:
            return
        self._planned = (self.world.version, self.world.now)
        movable = {s.host.name for s in self.world.servers if s.host.follows and not self._paused(s.host.name)}
        model = self._model()
        promises = self._promises(model)
        moves = plan(model, promises, movable=movable, known=self._known())
        servers = {s.host.name: s for s in self.world.servers if s.alive}
        for move in moves:
            self._leases[move.peer_id] = offered(move.peer_id, move.target, move.origin, self.world.now, self._turn(move))
            server = servers.get(move.peer_id)
            if server is not None:
                wait = server.draw.uniform(0, POLL_S)
                self.world.at(self.world.now + wait, partial(self._deliver, server, move))

    def _settle(self) -> None:
        """As the coordinator does after each crawl. Loading servers have said so since the last time."""
        servers = {s.host.name: s for s in self.world.servers if s.alive}
        for name, held in list(self._leases.items()):
            server, now = servers.get(name), self.world.now
            if server is not None and not server.online:
                held = self._leases[name] = renewed(held, now, server.loaded(now))
            seen = Span(server.start, server.start + server.size) if server is not None and server.online else None
            ended = end_of(held, seen, now, now)
            if ended is not None:
                if ended[0] is End.DONE and held.accepted_at is not None:
                    self._loads.append(now - held.accepted_at)
                del self._leases[name]
                self._note_end(name, ended[0])

    def _note_end(self, name: str, end: End) -> None:
        """As `coordinator.pauses` has it."""
        if end is End.DONE:
            self._unfollowed.pop(name, None)
        elif end is End.EXPIRED:
            times = self._unfollowed.get(name, (0, 0.0))[0] + 1
            self._unfollowed[name] = (times, self.world.now + pause_after(times).total_seconds())

    def _paused(self, name: str) -> bool:
        return self._unfollowed.get(name, (0, 0.0))[1] > self.world.now

    def _promises(self, model: Model) -> tuple[Promise, ...]:
        return promised(self._leases.values(), model, self.world.now, self._usual_s)

    @property
    def _usual_s(self) -> float:
        """As `coordinator.leases.usual_load_s` has it."""
        return median(self._loads[-LAST_LOADS:] or [0.0])

    def _turn(self, move: Move) -> int:
        """As `coordinator.leases.next_turn` has it."""
        now, usual_s = self.world.now, self._usual_s
        slow = (held for held in self._leases.values() if is_slow(held, True, now, usual_s))
        before = (held for held in slow if held.span.overlaps(move.target))
        return max((held.turn for held in before), default=-1) + 1 if move.filled else 0

    def _deliver(self, server: Server, move: Move) -> None:
        held = self._leases.get(move.peer_id)
        if not server.alive or held is None or self._silent_s():
            return
        model = self._model()
        others = [promise for promise in self._promises(model) if promise.peer_id != move.peer_id]
        stale = still_useful(
            model, move.peer_id, move.target, move.origin, others, reason_code=move.reason_code, known=self._known()
        )
        if (
            stale is None
            and server.online
            and (server.start, server.start + server.size) == (move.origin.start, move.origin.end)
        ):
            self._leases[move.peer_id] = accepted(held, self.world.now)
            self.world.move(server, move.target.start, len(move.target))
        else:
            del self._leases[move.peer_id]

    def _silent_s(self) -> float:
        """How long the coordinator has been down; 0 while it is up. Each day it goes down at hour 6."""
        since = (self.world.now - WARM_UP_S) % (24 * HOUR) - 6 * HOUR
        down = self.world.now > WARM_UP_S and 0 <= since < self.world.scene.outage_h * HOUR
        return max(since, 1.0) if down else 0.0

    def _model(self) -> Model:
        servers = tuple(self._show(server) for server in self.world.servers if server.noticed)
        return Model("m", self.world.scene.blocks, None, servers)

    def _show(self, server: Server) -> Seen:
        now = (server.start, server.size, server.online or not server.alive)
        kept = self._shown.get(server.host.name)
        if kept is None or kept[0] != now:
            span = Span(server.start, server.start + server.size)
            state = PeerState.ONLINE if now[2] else PeerState.JOINING
            record = ServerRecord(ServerState.ONLINE if now[2] else ServerState.JOINING, server.reported, span)
            kept = self._shown[server.host.name] = (now, Seen(server.host.name, span, state, record, 4e9))
        return kept[1]

    def _known(self) -> Circumstances:
        now = self.world.now
        shown = [server for server in self.world.servers if server.noticed]
        moved = {s.host.name: now - s.moved_at for s in shown if s.moved_at is not None}
        ages = {s.host.name: now - s.host.born for s in shown}
        reloading = sum(reloads(held, now) for held in self._leases.values())
        return Circumstances(ages_s=ages, moved_s_ago=moved, rates=self._rates(ages), reloading=reloading)

    def _rates(self, ages: dict[str, float]) -> dict[str, float]:
        if self.belief == "reported":
            return {}
        measured = self._measured if self.belief == "measured" else {}
        evidence = {name: Evidence(tuple(measured.get(name, ())), age) for name, age in ages.items()}
        beliefs = believed_rates(self._model(), evidence)
        return {name: belief.believed for name, belief in beliefs.items() if belief.believed is not None}


class AloneArm(CoordinatorArm):
    """Our servers, and there never was a coordinator."""

    def _silent_s(self) -> float:
        return max(1.0, self.world.now)


def play(scene: Scene, seed: int, arm: str) -> dict[str, float]:
    """One run. `arm` is `petals`, `alone` or one of BELIEFS."""
    world = World(scene, seed)
    if arm == "petals":
        PetalsArm(world, seed)
    elif arm == "alone":
        AloneArm(world, seed)
    else:
        CoordinatorArm(world, seed, arm)
    return world.run().figures()
