"""Who goes down together: by network where we saw one, by name where we did not."""

from __future__ import annotations

from dataclasses import replace

from swarm.coverage import Verdict, coverage
from swarm.operators import operator_of, operators_of
from swarm.snapshot import Outcome, PeerState, Server, Visit
from tests.swarms import model, server


def at(who: Server, network: str, name: str | None = None) -> Server:
    record = replace(who.record, public_name=name)
    return replace(who, record=record, visit=Visit(who.peer_id, 0.0, Outcome.ANSWERED, network=network))


def test_a_network_that_was_seen_goes_before_any_name() -> None:
    a, b = at(server("a", 0, 4), "x", "ada"), at(server("b", 0, 4), "x", "eva")
    c, d = at(server("c", 0, 4), "y", "ada"), at(server("d", 0, 4), "", "ada")
    assert operator_of(a) == operator_of(b), "whatever they call themselves"
    assert len({operator_of(a), operator_of(c), operator_of(d)}) == 3, "a name claims nobody whose network was seen"
    assert operator_of(d) == operator_of(server("ada", 0, 4)), "nothing but the name is known of either"


def test_nameless_servers_of_unknown_networks_stand_for_themselves() -> None:
    swarm = model(4, at(server("a", 0, 4), ""), at(server("b", 0, 4), ""))
    assert len(set(operators_of(swarm).values())) == 2


def test_it_is_said_where_all_servers_of_a_block_go_down_together() -> None:
    a, d = at(server("a", 0, 4), "x"), at(server("d", 2, 4), "x")
    b, c = (at(server(name, 0, 2), name) for name in "bc")
    seen = coverage(model(4, a, b, c, d))
    assert seen.verdict is Verdict.COMPLETE
    assert seen.sentence() == "runs; every block has two or more servers, but those of blocks 2–3 are all in one network"
    named = model(2, *(replace(s, record=replace(s.record, public_name="ada")) for s in (server("a", 0, 2), server("b", 0, 2))))
    assert coverage(named).sentence().endswith("but those of blocks 0–1 are all of one operator")
    joining = at(server("j", 2, 4, PeerState.JOINING), "j")
    assert coverage(model(4, a, b, c, d, joining)).together == seen.together, "not online yet"
    assert coverage(model(4, a, b, c, d, at(server("e", 2, 4), "e"))).together == ()


def test_one_server_alone_is_thin_and_nothing_else() -> None:
    assert coverage(model(4, at(server("a", 0, 4), "x"))).together == ()
