"""Audits: honest servers agree, a server with other weights is found out, and the conversation never notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from hivemind.p2p import P2P
from transformers import PreTrainedModel

from blockserver.client.audit import TOLERANCES, UNKNOWN_TOLERANCE, Audit, difference, tolerance_between
from blockserver.client.session import Session
from swarm.errors import LocalError
from swarm.routing import Candidate
from swarm.wire.spans import Span
from tests.blockserver.client.test_session import hidden, session
from tests.blockserver.loopback import Serving, serving
from tests.swarms import peer_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins(tiny: tuple[Path, PreTrainedModel], client: P2P) -> AsyncIterator[list[Serving]]:
    """0:3 twice, 3:6 twice; the second one of 3:6 computes with weights of its own."""
    async with AsyncExitStack() as stack:
        spans = (Span(0, 3), Span(0, 3), Span(3, 6), Span(3, 6))
        servers = [await stack.enter_async_context(serving(tiny[0], span, "tiny", client)) for span in spans]
        with torch.inference_mode():
            for weight in servers[3].engine.module.layers.parameters():
                weight.mul_(1.3)
        yield servers


async def audited(one: Session, audit: Audit) -> torch.Tensor:
    one.audit = audit
    await one.step(hidden(1, 2, 4))
    await audit.finish(20)
    output = await one.step(hidden(2, 2, 1), hypo_ids=torch.tensor([1, 1]))
    await audit.finish(20)
    return output


@pytest.mark.asyncio(loop_scope="module")
async def test_honest_servers_agree(client: P2P, twins: list[Serving]) -> None:
    audit = Audit(1.0, seed=0)
    async with session(client, twins[:2], Span(0, 3)) as one:
        await audited(one, audit)
    assert (audit.passed, audit.not_possible, audit.disagreements) == (2, 0, [])
    assert audit.in_words() == "audited 2 steps, all agreed"
    for server in twins[:2]:
        await asyncio.wait_for(server.handler._idle.wait(), 60)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_server_with_other_weights_is_reported_with_the_evidence(client: P2P, twins: list[Serving]) -> None:
    audit = Audit(1.0, seed=0)
    async with session(client, twins[2:], Span(3, 6)) as one:
        output = await audited(one, audit)
    async with session(client, twins[2:3], Span(3, 6)) as alone:
        torch.testing.assert_close(output, await audited(alone, Audit(0.0)))
    first, second = audit.disagreements
    assert (first.blocks, first.position, second.position) == (Span(3, 6), 0, 4)
    assert (first.peer, first.others) == (twins[2].peer_id, (twins[3].peer_id,))
    assert first.relative > first.tolerance == UNKNOWN_TOLERANCE
    said = first.in_words()
    assert "blocks 3–5, audited at token 0" in said and twins[2].peer_id in said and twins[3].peer_id in said
    assert "verified" not in said
    assert audit.in_words() == "audited 2 steps, 2 with disagreement"


@pytest.mark.asyncio(loop_scope="module")
async def test_where_nobody_else_holds_the_blocks_nothing_is_audited(client: P2P, twins: list[Serving]) -> None:
    audit = Audit(1.0, seed=0)
    async with session(client, twins[:1], Span(0, 3)) as one:
        await audited(one, audit)
    assert (audit.passed, audit.not_possible, audit.in_words()) == (0, 2, "audited 0 steps")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_share_of_the_steps_is_drawn_and_closing_waits_for_none(client: P2P, twins: list[Serving]) -> None:
    audit = Audit(0.25, seed=1)
    async with session(client, twins[:2], Span(0, 3)) as one:
        one.audit = audit
        for seed in range(24):
            await one.step(hidden(seed, 1, 1))
            if audit._running:
                await asyncio.wait({audit._running})
    assert 2 <= audit.passed <= 12
    with pytest.raises(LocalError, match="0 to 1, not 2"):
        Audit(2.0)


def test_the_difference_is_that_of_the_worst_token() -> None:
    one, other = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)
    one[0, :, 0], other[0, :, 0] = 2.0, 2.0
    other[0, 1, 1] = 0.5
    assert difference(one, other) == (0.5, 0.25)


def test_the_tolerance_is_that_of_the_coarser_dtype_and_other_quantisation_is_not_compared() -> None:
    def server(dtype: str | None, quant: str | None = None) -> Candidate:
        return Candidate(peer_id("a"), Span(0, 1), dtype=dtype, quant_type=quant)

    assert tolerance_between([server("float32"), server("float32", "none")]) == TOLERANCES["float32"]
    assert tolerance_between([server("float32"), server("bfloat16")]) == TOLERANCES["bfloat16"]
    assert tolerance_between([server("float32"), None]) == UNKNOWN_TOLERANCE
    assert tolerance_between([server("float32"), server("float32", "nf4")]) is None
