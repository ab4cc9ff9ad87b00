"""Every public page once, on the made-up swarm: what must hold for all of them is tested for each line here."""

from __future__ import annotations

from tests.showcase import LARGE, MIDDLE, SMALL
from tests.swarms import peer_id

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
    "connect": f"/connect?memory_gb=24&parameters_b=405&precision=nf4&model={LARGE}",
    "what if": f"/what-if?model={MIDDLE}&add_blocks=6",
    "hints": "/hints",
    "no such page": "/no/such/page",
}
