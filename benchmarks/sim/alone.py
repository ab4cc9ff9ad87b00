"""What servers do by themselves while the coordinator is down: on the records alone, as `blockserver.serving` has it.

They see who announces what, and neither promises, ages nor measured rates. For a hole all of them find the same mover, so one
decides here for all. After an hour each looks for a better place by the product's own `OwnBalance`. Not simulated: that records
take seconds to spread, and that open sessions keep a server where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benchmarks.sim.world import Server, World
from blockserver.serving.own_balance import BALANCE_ALONE_AFTER_S, OwnBalance
from swarm.placement import Move, choose_span, mend, still_useful
from swarm.snapshot import Model
from swarm.snapshot import Server as Seen
from swarm.wire.spans import Span

CONFIRM_S, LOOK_S = 60.0, 30.0
"""For how long the same holes must stand before a server moves, and how often it looks (`sepal-server`'s own figures)."""


@dataclass
class LoneServers:
    """`show` is how a server stands in the records."""

    world: World
    show: Callable[[Server], Seen]
    _holes: tuple[frozenset[int], float] = (frozenset(), 0.0)
    _on_their_way: set[str] = field(default_factory=set)
    _balances: dict[Server, OwnBalance] = field(default_factory=dict)

    def model(self) -> Model:
        listed = (self.show(server) for server in self.world.servers if server.listed and server.size)
        return Model("m", self.world.scene.blocks, None, tuple(listed))

    def arrive(self, server: Server) -> None:
        span = choose_span(self.model(), server.host.blocks).span
        self.world.load(server, span.start, len(span), ready=self.world.now == 0.0)

    def rest(self) -> None:
        """The coordinator is there."""
        self._balances.clear()

    def look(self, silent_s: float) -> None:
        """Called every `LOOK_S` once the silence has lasted for as long as servers wait."""
        self._mend()
        for server in self.world.servers:
            alone_s = min(silent_s, self.world.now - server.joined)
            if server.alive and server.online and server.host.follows and alone_s >= BALANCE_ALONE_AFTER_S:
                self.world.at(self.world.now + server.draw.uniform(0, LOOK_S), partial(self._balance, server))

    def _balance(self, server: Server) -> None:
        if not server.alive or not server.online:
            return
        now, here = self.world.now, Span(server.start, server.start + server.size)
        balance = self._balances.setdefault(server, OwnBalance(server.host.name, CONFIRM_S, server.draw.uniform))
        balance.note("m", here, now)
        if not balance.is_due(now):
            return
        move = balance.look(self.model(), here, now)
        if move is not None:
            self.world.move(server, move.target.start, len(move.target))

    def _mend(self) -> None:
        model, now = self.model(), self.world.now
        followers = {s.host.name: s for s in self.world.servers if s.alive and s.host.follows}
        moves = mend(model, movable=followers)
        holes = frozenset(block for move in moves for block in move.filled)
        if holes != self._holes[0]:
            self._holes = (holes, now)
        if now - self._holes[1] < CONFIRM_S:
            return
        for move in moves:
            if move.peer_id not in self._on_their_way:
                self._on_their_way.add(move.peer_id)
                server = followers[move.peer_id]
                self.world.at(now + server.draw.uniform(0, LOOK_S), partial(self._go, server, move))

    def _go(self, server: Server, move: Move) -> None:
        self._on_their_way.discard(move.peer_id)
        here = (server.start, server.start + server.size) == (move.origin.start, move.origin.end)
        if not (server.alive and server.online and here):
            return
        if still_useful(self.model(), move.peer_id, move.target, move.origin, reason_code=move.reason_code) is None:
            self.world.move(server, move.target.start, len(move.target))
