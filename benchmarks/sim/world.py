"""What really happens: servers come, load, serve, move and go, and what a client would get of it is summed up.

Knows no policy: an arm (`arms.py`) decides where arrivals go and who moves. Events are in seconds. Loads take 2 to 5 minutes;
a crash stays in the records for one to two minutes and is noticed by the coordinator's visits after 20 to 40 seconds.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.sim.traces import HOUR, WARM_UP_S, Host, Scene, trace

LOAD_S = (120.0, 300.0)
RECORD_S = (60.0, 120.0)
NOTICED_S = (20.0, 40.0)
BACK_AFTER_S = HOUR


@dataclass(eq=False)
class Server:
    """`noticed` and `listed` say whether the coordinator and the records still show it."""

    host: Host
    draw: random.Random
    joined: float = 0.0
    start: int = 0
    size: int = 0
    alive: bool = True
    online: bool = False
    noticed: bool = False
    listed: bool = False
    moved_at: float | None = None
    loads_from: float = 0.0
    loads_until: float = 0.0
    life: int = 0

    @property
    def reported(self) -> float:
        return self.host.rate * (10.0 if self.host.liar else 1.0)

    def loaded(self, now: float) -> float:
        """The share of its bytes that it reports, 0 to 1."""
        return min(1.0, (now - self.loads_from) / max(self.loads_until - self.loads_from, 1e-9))


@dataclass
class Tally:
    """Sums over the measured time."""

    seconds: float = 0.0
    available: float = 0.0
    doubled: float = 0.0
    share: float = 0.0
    server_seconds: float = 0.0
    moves: int = 0
    outages: int = 0
    repairs: list[tuple[float, int]] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        days = self.seconds / (24 * HOUR)
        repaired = [moves for _, moves in self.repairs]
        return {
            "available": self.available / self.seconds,
            "bottleneck": self.share / self.seconds,
            "doubled": self.doubled / self.seconds,
            "moves": self.moves / (self.server_seconds / (24 * HOUR)),
            "outages": self.outages / days,
            "holes": float(len(self.repairs)),
            "movers_per_hole": float(np.mean(repaired)) if repaired else float("nan"),
            "repair_s": float(np.median([seconds for seconds, _ in self.repairs])) if repaired else float("nan"),
        }


class World:
    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene, self.now, self.version = scene, 0.0, 0
        self.draw = random.Random(f"world {seed}")
        self.servers: list[Server] = []
        self.tally = Tally()
        self.end = WARM_UP_S + scene.days * 24 * HOUR
        self.throughput = np.zeros(scene.blocks)
        self.held = np.zeros(scene.blocks, dtype=np.int64)
        self._potential, self._alive, self._sequence = 0.0, 0, 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._hole_since: tuple[float, int] | None = None
        self._total_moves, self._was_down = 0, False
        self.on_arrival: Callable[[Server], None] = lambda server: None
        self.on_online: Callable[[Server], None] = lambda server: None
        self.on_gone: Callable[[Server], None] = lambda server: None
        for host in trace(scene, seed):
            self.at(host.joins, partial(self._join, host))
        if scene.kill_every_h:
            self.at(WARM_UP_S, self._kill)

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (max(when, self.now), self._sequence, what))

    def run(self) -> Tally:
        while self._queue and self._queue[0][0] < self.end:
            when, _, what = heapq.heappop(self._queue)
            self._account(when)
            what()
        self._account(self.end)
        return self.tally

    def load(self, server: Server, start: int, size: int, *, ready: bool = False) -> None:
        """The server announces JOINING there and is online when it has loaded; `ready` for those that served before time 0."""
        server.start, server.size, server.noticed, server.listed = start, size, True, True
        self._potential += size * server.host.rate
        self._alive += 1
        self.version += 1
        server.life += 1
        life = server.life
        wait = 0.0 if ready else server.draw.uniform(*LOAD_S) * self.scene.load_factor
        server.loads_from, server.loads_until = self.now, self.now + wait
        self.at(server.loads_until, lambda: self._online(server, life))

    def leave(self, server: Server) -> None:
        """Stops serving its span, at once."""
        if server.size:
            self._potential -= server.size * server.host.rate
            self._alive -= 1
        if server.online:
            server.online = False
            self._serve(server, -1)
        self.version += 1

    def move(self, server: Server, start: int, size: int) -> None:
        self.leave(server)
        server.moved_at = self.now
        self._total_moves += 1
        if self.now >= WARM_UP_S:
            self.tally.moves += 1
        self.load(server, start, size)

    def _join(self, host: Host) -> None:
        server = Server(host, random.Random(host.luck), self.now)
        self.servers.append(server)
        self.at(host.leaves, lambda: self._go(server, host.crashes))
        self.on_arrival(server)

    def _go(self, server: Server, crashes: bool) -> None:
        if not server.alive:
            return
        server.alive = False
        server.life += 1
        self.leave(server)
        self.servers.remove(server)
        if crashes and server.size:
            self._ghosts(server)
        else:
            server.noticed = server.listed = False
            self.on_gone(server)

    def _ghosts(self, server: Server) -> None:
        self.servers.append(server)

        def unnoticed() -> None:
            server.noticed = False
            self.version += 1
            self.on_gone(server)

        def unlisted() -> None:
            server.listed = False
            self.servers.remove(server)
            self.version += 1

        self.at(self.now + server.draw.uniform(*NOTICED_S), unnoticed)
        self.at(self.now + server.draw.uniform(*RECORD_S), unlisted)

    def _online(self, server: Server, life: int) -> None:
        if server.life == life and server.alive:
            server.online = True
            self._serve(server, 1)
            self.version += 1
            self.on_online(server)

    def _serve(self, server: Server, sign: int) -> None:
        span = slice(server.start, server.start + server.size)
        self.held[span] += sign
        self.throughput[span] += sign * server.host.rate
        # What is left of a difference of floats is no throughput.
        self.throughput[self.held == 0] = 0.0
        self._watch()

    def _watch(self) -> None:
        whole = bool(self.held.min() > 0)
        if whole and self._hole_since is not None:
            since, moves = self._hole_since
            self.tally.repairs.append((self.now - since, self._total_moves - moves))
            self._hole_since = None

    def _account(self, until: float) -> None:
        seconds = until - max(self.now, WARM_UP_S)
        if seconds > 0:
            least = int(self.held.min())
            self.tally.seconds += seconds
            self.tally.available += seconds * (least > 0)
            self.tally.doubled += seconds * (least > 1)
            self.tally.share += seconds * float(self.throughput.min()) * self.scene.blocks / max(self._potential, 1e-9)
            self.tally.server_seconds += seconds * self._alive
            self.tally.outages += int(least == 0 and not self._was_down)
            self._was_down = least == 0
        self.now = until

    def _kill(self) -> None:
        """All holders of a least covered block crash; they come back an hour later."""
        self.at(self.now + self.scene.kill_every_h * HOUR, self._kill)
        if self._hole_since is not None or self.held.min() == 0:
            return
        block = self.draw.choice(np.flatnonzero(self.held == self.held.min()).tolist())
        victims = [s for s in self.servers if s.alive and s.online and s.start <= block < s.start + s.size]
        for victim in victims:
            self._go(victim, True)
            back = self.now + BACK_AFTER_S
            if victim.host.leaves > back:
                self.at(back, partial(self._join, victim.host))
        # Only now: while they go one by one, the block is still held.
        self._hole_since = (self.now, self._total_moves)
