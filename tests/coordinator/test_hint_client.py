"""The block server's own client against the real site over HTTP: signed, retried, and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from django.db import connections

from blockserver.serving.hint_client import CoordinatorDown, HintClient
from coordinator.models import Lease, Phase
from swarm.wire.hints import HintRequest, SpanDocument
from swarm.wire.identity import Signer
from swarm.wire.spans import Span
from tests.coordinator.seeding import seen
from tests.coordinator.signing import signed_server, signer
from tests.swarms import model, server

pytestmark = pytest.mark.django_db(transaction=True)

ME = signer("me")
SWARM = model(30, signed_server("me", 0, 12), server("a", 0, 12), server("c", 18, 30))

Result = TypeVar("Result")


@pytest.fixture
def site(live_server: Any) -> Iterator[str]:
    seen(SWARM)
    yield live_server.url
    connections.close_all()


def asking(url: str, as_whom: Signer | None, use: Callable[[HintClient], Awaitable[Result]]) -> Result:
    """Runs in a loop of its own, so that the test itself may use the database."""

    async def run() -> Result:
        async with HintClient(url, as_whom) as hints:
            return await use(hints)

    return asyncio.run(run())


def question() -> HintRequest:
    current = SpanDocument(start=0, end=12)
    return HintRequest(peer=ME.peer_id, model="tiny-hf", num_blocks_max=12, num_blocks=12, current=current)


def test_a_signing_server_gets_a_lease_takes_it_and_reports(site: str) -> None:
    async def use(hints: HintClient) -> list[str]:
        answer = await hints.ask(question())
        assert answer.lease is not None
        taken = await hints.accept(answer.lease, ME.peer_id, Span(0, 12))
        reported = await hints.report_progress(answer.lease, ME.peer_id, 0.25)
        return [taken.outcome, reported.outcome]

    assert asking(site, ME, use) == ["ok", "ok"]
    assert (Lease.objects.get().phase, Lease.objects.get().progress) == (Phase.ACCEPTED, 0.25)


def test_it_declines_with_a_reason_and_a_time(site: str) -> None:
    async def use(hints: HintClient) -> str:
        answer = await hints.ask(question())
        assert answer.lease is not None
        reply = await hints.decline(answer.lease, ME.peer_id, "pinned", not_again_s=600)
        again = await hints.ask(question())
        return f"{reply.outcome}, {again.reason_code}"

    assert asking(site, ME, use) == "ok, asked-not-to"


def test_a_nonce_that_has_lapsed_costs_one_more_try_and_no_answer(site: str) -> None:
    async def use(hints: HintClient) -> list[str]:
        first = await hints.ask(question())
        hints._nonce = "n" * 24
        second = await hints.ask(question())
        return [str(answer.reason_code) for answer in (first, second)]

    assert asking(site, ME, use) == ["hole", "hole"]


def test_without_a_key_there_is_advice_and_no_lease(site: str) -> None:
    answer = asking(site, None, lambda hints: hints.ask(question()))
    assert answer.advice == "move" and answer.lease is None and answer.no_lease_because
    assert not Lease.objects.exists()


def test_a_key_of_somebody_else_counts_as_no_answer(site: str) -> None:
    with pytest.raises(CoordinatorDown, match="401"):
        asking(site, signer("other"), lambda hints: hints.ask(question()))


def test_a_coordinator_that_cannot_check_counts_as_down(site: str, settings: Any) -> None:
    backend = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {"default": backend}
    with pytest.raises(CoordinatorDown, match="503"):
        asking(site, ME, lambda hints: hints.ask(question()))
