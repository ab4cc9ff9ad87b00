"""Hypothesis strategies for swarms."""

from __future__ import annotations

from hypothesis import strategies as st

from swarm.snapshot import Model, PeerState, Server
from tests.swarms import model, server

WORST: tuple[object, ...] = (
    *("\x00", "\u202e", "\u0085", "", b"\xff"),
    *(5e-324, 1e-46, 1e308, float("inf"), float("-inf"), float("nan"), -0.0),
    *(0, -1, 2**31, 2**63, 2**64 - 1, True, None, (), {}),
)
"""What some program or database does not bear."""
EVIL = st.sampled_from(WORST)
whatever = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | EVIL,
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
"""Any value that can stand in the DHT, with those that some program does not bear more often than chance has them."""

STATES = st.sampled_from([PeerState.ONLINE, PeerState.ONLINE, PeerState.JOINING, PeerState.UNREACHABLE, PeerState.LEAVING])


@st.composite
def servers(draw: st.DrawFn, num_blocks: int, name: str) -> Server:
    start = draw(st.integers(0, num_blocks - 1))
    end = draw(st.integers(start + 1, num_blocks))
    throughput = draw(st.none() | st.floats(0.5, 1000.0))
    return server(name, start, end, draw(STATES), throughput)


@st.composite
def models(draw: st.DrawFn, max_blocks: int = 12, max_servers: int = 8) -> Model:
    num_blocks = draw(st.integers(1, max_blocks))
    count = draw(st.integers(0, max_servers))
    unread = draw(st.frozensets(st.integers(0, num_blocks - 1), max_size=2))
    return model(num_blocks, *(draw(servers(num_blocks, f"s{i}")) for i in range(count)), unread=unread)


@st.composite
def crowds(draw: st.DrawFn, max_blocks: int = 8, max_servers: int = 12) -> Model:
    """Swarms with something to spare: all online, every block held, rates known or not."""
    num_blocks = draw(st.integers(2, max_blocks))
    everywhere = server("base", 0, num_blocks, throughput=draw(st.floats(1.0, 50.0)))
    count = draw(st.integers(2, max_servers))
    found = []
    for number in range(count):
        start = draw(st.integers(0, num_blocks - 1))
        end = draw(st.integers(start + 1, num_blocks))
        found.append(server(f"s{number}", start, end, throughput=draw(st.none() | st.floats(1.0, 50.0))))
    return model(num_blocks, everywhere, *found)
