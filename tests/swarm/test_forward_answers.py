"""Real servers on loopback, honest and lying, asked alike: nonsense by itself is no rate, and the rest is told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import torch
from hivemind.p2p import P2P

from blockserver.model.blocks import SpanModule, load_span
from blockserver.model.quantisation import NF4, NONE
from swarm.answers.judging import Answer, Question, judge
from swarm.answers.prints import Wrong
from swarm.dht.forward import ROUNDS, Asked, Measured, Why, measure
from swarm.wire.spans import Span
from tests.blockserver.loopback import loopback_peer
from tests.swarm.lying import LIES, Liar, Lie, lying
from tests.tiny_models import save_tiny_model

PREFIX = "tiny-hf"
SPAN = Span(1, 4)

Blocks = dict[int, SpanModule]


@pytest.fixture(scope="module")
def precisions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Blocks]:
    """The same blocks as servers hold them."""
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder, wide=True)
    kinds = {"float32": (torch.float32, NONE), "bfloat16": (torch.bfloat16, NONE), "nf4": (torch.bfloat16, NF4)}
    return {
        name: {n: load_span(folder, Span(n, n + 1), dtype, quantisation=quantisation) for n in SPAN}
        for name, (dtype, quantisation) in kinds.items()
    }


@pytest.fixture
async def client() -> AsyncIterator[P2P]:
    peer = await loopback_peer()
    yield peer
    await peer.shutdown()


@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        ("echo", Wrong.ECHO),
        ("zeros", Wrong.ZEROS),
        ("not a number", Wrong.NOT_FINITE),
        ("double", Wrong.DTYPE),
    ],
)
async def test_quick_nonsense_is_wrong_by_itself_and_no_rate(
    client: P2P, precisions: dict[str, Blocks], lie: str, fault: Wrong
) -> None:
    async with lying(client, precisions["float32"], LIES[lie]) as server:
        found = await measure(client, server.peer_id, PREFIX, SPAN, asked=Asked(2, b"seed"))
        assert (found.timing, found.why, found.wrong, found.block) == (None, Why.WRONG, fault, None)
        assert len(server.servicer.asked) == 1, "one is enough"


async def test_who_runs_one_block_for_all_of_them_is_found_alone(client: P2P, precisions: dict[str, Blocks]) -> None:
    first = Asked(SPAN.start, b"seed")
    cheap: Lie = lambda right, sent, span: precisions["float32"][SPAN.start].forward(sent)  # noqa: E731
    async with lying(client, precisions["float32"], cheap) as server:
        assert (await measure(client, server.peer_id, PREFIX, SPAN, asked=first)).wrong == Wrong.ONE_FOR_ALL


async def test_who_is_asked_alike_gets_the_same_tensors_and_other_ones_each_turn(
    client: P2P, precisions: dict[str, Blocks]
) -> None:
    async with (
        lying(client, precisions["float32"], LIES["honest"]) as one,
        lying(client, precisions["float32"], LIES["honest"]) as other,
    ):
        for server in (one, other):
            await measure(client, server.peer_id, PREFIX, SPAN, asked=Asked(2, b"seed"))
        assert one.servicer.asked == other.servicer.asked
        assert [span for span, _ in one.servicer.asked] == ROUNDS * [SPAN, Span(2, 3)]
        assert len({buffer for _, buffer in one.servicer.asked}) == ROUNDS
        await measure(client, one.peer_id, PREFIX, SPAN)
        assert one.servicer.asked[-1][1] not in {buffer for _, buffer in other.servicer.asked}


@pytest.mark.slow
async def test_honest_servers_of_any_precision_agree_and_liars_do_not(client: P2P, precisions: dict[str, Blocks]) -> None:
    """The lazy one computes single blocks rightly and makes up the rest: servers of just its blocks show it."""
    everyone: list[tuple[str, str, str]] = [
        ("first", "float32", "honest"),
        ("half", "bfloat16", "honest"),
        ("coarse", "nf4", "honest"),
        ("random", "float32", "random"),
        ("lazy", "float32", "lazy"),
    ]
    async with AsyncExitStack() as stack:
        servers: dict[str, tuple[Liar, str]] = {}
        for name, precision, lie in everyone:
            server = await stack.enter_async_context(lying(client, precisions[precision], LIES[lie]))
            servers[name] = (server, "nf4" if precision == "nf4" else "none")
        answers: list[Answer] = []
        for number, seed in enumerate((b"one round", b"another")):
            for name, (server, precision) in servers.items():
                found = await measure(client, server.peer_id, PREFIX, SPAN, asked=Asked(3, seed))
                assert found.timing is not None, (name, found.why)
                answers += _answers(name, number, found, precision)
    standing = {name: found.standing.value for (_, name), found in judge(answers).items()}
    assert standing == {"first": "agrees", "half": "agrees", "coarse": "agrees", "random": "differs", "lazy": "differs"}


def _answers(name: str, number: int, found: Measured, precision: str) -> list[Answer]:
    assert found.block is not None and found.whole is not None
    return [
        Answer(name, name, Question(PREFIX, number, Span(3, 4)), found.block),
        Answer(name, name, Question(PREFIX, number, SPAN, True, precision), found.whole),
    ]
