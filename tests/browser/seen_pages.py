"""Every public page once, on the made-up swarm: what must hold for all of them is tested for each line here."""

from __future__ import annotations

from swarm.wire.doctor import Mark, encode
from tests.showcase import LARGE, MIDDLE, SMALL
from tests.showcase_people import FOLLOWER, HINT, SECRET
from tests.swarms import peer_id

CODE = encode({"gpu": Mark.RIGHT, "disk": Mark.RIGHT, "port": Mark.ERROR, "clock": Mark.WARNING})
CARD = "memory_gb=24&parameters_b=405&precision=nf4"

PAGES = {
    "overview": "/",
    "model": f"/m/{LARGE}",
    "model, few servers": f"/m/{MIDDLE}?more=1&sort=fastest",
    "model, filter finds nothing": f"/m/{SMALL}?state=leaving",
    "model, wrong prefix": "/m/Mixtral-8x22",
    "server": f"/p/{peer_id('middle 0')}",
    "server, unreachable": f"/p/{peer_id('lost')}",
    "server, never seen": f"/p/{peer_id('nobody')}",
    "incidents": "/incidents",
    "incident": "/incidents/{incident}",
    "incident, absent": "/incidents/99999999",
    "search": "/search?q=lab",
    "search, nothing": "/search?q=nothing-is-called-so",
    "connect": f"/connect?{CARD}&model={LARGE}&code={CODE}",
    "watch": f"/connect/watch?model={LARGE}&peer={FOLLOWER.peer_id}&since=1",
    "watch, not announced": f"/connect/watch?model={LARGE}&peer={peer_id('nobody')}&since=1",
    "watch, nobody named": "/connect/watch",
    "what if": f"/what-if?model={MIDDLE}&add_blocks=6",
    "hints": "/hints",
    "hint": f"/hints/{HINT}",
    "chat": "/chat",
    "alerts": "/alerts",
    "alert": f"/alerts/{SECRET}",
    "exports": "/exports",
    "API": "/docs/api",
    "errors": "/docs/errors",
    "error": "/docs/errors/unknown-model",
    "how we measure": "/how-we-measure",
    "no such page": "/no/such/page",
}

NOT_THERE = {"model, wrong prefix", "server, never seen", "incident, absent", "search, nothing", "no such page"}
