"""A router for those who choose their servers: only some peers, or all but some."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from blockserver.client.routes import Router
from swarm.routing import Route, Wanted


class Restricted:
    """`router`, but no peers other than `allowed` (None for all), and none of `blocked`; peer ids."""

    def __init__(self, router: Router, allowed: Collection[str] | None, blocked: Collection[str]) -> None:
        self._router = router
        self._allowed = None if allowed is None else frozenset(allowed)
        self._blocked = frozenset(blocked)

    async def find(self, wanted: Wanted) -> Route:
        allowed = wanted.allowed
        if self._allowed is not None:
            allowed = self._allowed if allowed is None else allowed & self._allowed
        return await self._router.find(replace(wanted, allowed=allowed, blocked=wanted.blocked | self._blocked))

    def failed(self, peer_id: str) -> None:
        self._router.failed(peer_id)

    def worked(self, peer_id: str) -> None:
        self._router.worked(peer_id)

    def forgive(self) -> None:
        self._router.forgive()
