"""The server to kill is one whose loss opens a gap that the others can close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.launch.choose import choose
from swarm.errors import LocalError
from swarm.wire.spans import Span

# The usual demo: 30 blocks, the fourth server doubles the first.
DEMO = {"QmA": Span(0, 12), "QmB": Span(12, 24), "QmC": Span(18, 30), "QmD": Span(0, 12)}


def test_a_repairable_gap_is_preferred() -> None:
    choice = choose(DEMO, ["QmA", "QmB", "QmC", "QmD"])
    assert choice.peer_id == "QmB"
    assert choice.reason == "without it blocks 12–17 have no server, and …QmA can move there"


def test_a_gap_that_nobody_can_close_is_the_second_choice() -> None:
    choice = choose({"QmA": Span(0, 12), "QmB": Span(12, 24)}, ["QmA", "QmB"])
    assert choice.peer_id == "QmA"
    assert "no other server is free" in choice.reason


def test_a_server_shorter_than_the_gap_is_no_help() -> None:
    held = {"QmA": Span(0, 12), "QmB": Span(12, 24), "QmShort": Span(0, 4)}
    assert "no other server is free" in choose(held, ["QmB"]).reason


def test_where_no_loss_opens_a_gap_it_says_so() -> None:
    choice = choose({"QmA": Span(0, 12), "QmB": Span(0, 12)}, ["QmB", "QmA"])
    assert (choice.peer_id, choice.reason) == ("QmB", "every block has another server, so no gap will open")


def test_servers_of_other_people_are_never_chosen() -> None:
    assert choose(DEMO, ["QmC"]).peer_id == "QmC"
    with pytest.raises(LocalError, match="there is none to kill"):
        choose(DEMO, ["QmUnknown"])


spans = st.tuples(st.integers(0, 20), st.integers(1, 10)).map(lambda pair: Span(pair[0], pair[0] + pair[1]))


@given(st.dictionaries(st.sampled_from([f"Qm{n}" for n in range(6)]), spans, min_size=1))
def test_what_the_reason_promises_is_true(held: dict[str, Span]) -> None:
    choice = choose(held, sorted(held))
    left = [span for peer_id, span in held.items() if peer_id != choice.peer_id]
    lost = set(held[choice.peer_id]) - {block for span in left for block in span}
    assert bool(lost) == choice.reason.startswith("without it")
    if "can move there" in choice.reason:
        helper = next(p for p in held if f"…{p[-6:]} can move" in choice.reason)
        others = [span for p, span in held.items() if p not in (helper, choice.peer_id)]
        assert set(held[helper]) <= {block for span in others for block in span}
