"""Which servers' distance a server announces, and that it does."""

from __future__ import annotations

import random
from pathlib import Path

from transformers import PreTrainedModel

from blockserver.serving.neighbours import MOST_OF_EACH, neighbours
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.blockserver.living import config, online, serving, until
from tests.loopback import nodes, reader_of
from tests.swarms import peer_id


def seen(*servers: tuple[str, Span]) -> Model:
    record = ServerRecord(ServerState.ONLINE, 1.0)
    return Model("tiny", 6, None, tuple(Server(peer_id(name), span, PeerState.ONLINE, record, 1.0) for name, span in servers))


def test_those_after_the_span_and_those_within_it() -> None:
    model = seen(("own", Span(1, 4)), ("next", Span(4, 6)), ("within", Span(2, 4)), ("same start", Span(0, 2)))
    found = neighbours(model, Span(1, 4), peer_id("own"), random.Random(0))
    assert found == [peer_id("next"), peer_id("within")]


def test_of_many_some_are_drawn() -> None:
    model = seen(
        *((f"next{number}", Span(4, 6)) for number in range(20)), *((f"in{number}", Span(1, 3)) for number in range(20))
    )
    found = neighbours(model, Span(1, 4), peer_id("own"), random.Random(0))
    assert len(found) == len(set(found)) == 2 * MOST_OF_EACH
    assert found != neighbours(model, Span(1, 4), peer_id("own"), random.Random(1))


async def test_a_server_announces_how_far_the_next_one_is(tiny: tuple[Path, PreTrainedModel]) -> None:
    async with nodes(1) as (boot,), reader_of(boot) as reader:
        async with serving(await config(boot, tiny[0], block_indices=Span(3, 6))):
            (last,) = (await until(reader, online(Span(3, 6)))).servers
            async with serving(await config(boot, tiny[0], block_indices=Span(0, 3))):
                model = await until(reader, online(Span(0, 3), Span(3, 6)))
                (first,) = [server for server in model.servers if server.span == Span(0, 3)]
    assert last.record.next_pings == {}
    assert list(first.record.next_pings) == [last.peer_id]
    assert 0 < first.record.next_pings[last.peer_id] < 3
