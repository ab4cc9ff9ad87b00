"""All of the monitor's reads: under /api/v1, and under /api/v2 what Statuspage's readers ask for."""

from __future__ import annotations

from ninja import Router

from monitor.api import blocks, crawls, history, models, petals, servers, statuspage, swarms

V1: tuple[Router, ...] = (
    swarms.router, models.router, blocks.router, servers.router, history.router, crawls.router, petals.router,
)  # fmt: skip
V2: tuple[Router, ...] = (statuspage.router,)
