"""Servers that change to another model: for holes that nobody else can fill, and never at the cost of the model they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.placement import Circumstances, Demand, Promise, choose_model, find_holes, plan, transfers, without
from swarm.placement.fleet import THROUGHPUT_COUNTS, gained, objection, why_chosen
from swarm.placement.holders import planned, stand_in
from swarm.placement.objective import survey, worth
from swarm.snapshot import Model, PeerState
from swarm.wire.spans import Span, suffixes
from tests.strategies import crowds
from tests.swarms import model, peer_id, server


def named(prefix: str, swarm: Model) -> Model:
    return replace(swarm, prefix=prefix)


def everyone(_: str, __: str) -> int:
    return 4


RICH = named("rich", model(8, *(server(f"r{n}", 0, 8) for n in range(4))))
BROKEN = named("broken", model(8, server("b", 0, 4)))


def test_a_server_of_a_model_with_plenty_fills_the_hole_of_one_that_cannot_help_itself() -> None:
    assert not plan(BROKEN), "its only server cannot leave its blocks"
    (move,) = transfers([Demand(RICH, 1.0, 1), Demand(BROKEN, 1.0, 1)], everyone)
    assert (move.source, move.target, move.placement.span, move.origin) == ("rich", "broken", Span(4, 8), Span(0, 8))
    assert "blocks 4–7 have no server" in move.placement.reason


def test_a_model_whose_own_servers_can_mend_it_gets_nobody() -> None:
    able = named("able", model(8, server("a", 0, 4), server("b", 0, 4)))
    assert plan(able)
    assert transfers([Demand(RICH, 1.0, 1), Demand(able, 1.0, 1)], everyone) == ()


def test_a_hole_that_is_promised_already_needs_nobody() -> None:
    promised = Demand(BROKEN, 1.0, 1, (Promise(peer_id("x"), Span(4, 8)),))
    assert transfers([Demand(RICH, 1.0, 1), promised], everyone) == ()


def test_demand_decides_between_models_and_a_model_that_is_wanted_more_is_not_robbed() -> None:
    other = named("other", BROKEN)
    first, *_ = transfers([Demand(RICH, 1.0, 1), Demand(BROKEN, 1.0, 1), Demand(other, 3.0, 1)], everyone)
    assert first.target == "other"
    assert transfers([Demand(RICH, 100.0, 1), Demand(BROKEN, 1.0, 1)], everyone) == ()


def test_only_who_can_hold_the_other_model_and_follows_hints_is_asked() -> None:
    demands = [Demand(RICH, 1.0, 1), Demand(BROKEN, 1.0, 1)]
    assert transfers(demands, lambda peer, prefix: 0) == ()
    assert transfers(demands, everyone, movable=()) == ()
    (move,) = transfers(demands, everyone, movable={peer_id("r2")})
    assert move.peer_id == peer_id("r2")


def test_half_a_hole_is_filled_by_as_many_as_it_takes() -> None:
    moves = transfers([Demand(RICH, 1.0, 1), Demand(BROKEN, 1.0, 1)], lambda peer, prefix: 2)
    assert sorted(move.placement.span for move in moves) == [Span(4, 6), Span(6, 8)]
    assert len({move.peer_id for move in moves}) == 2


def test_an_arrival_goes_where_there_are_fewer_servers_and_demand_weighs_that() -> None:
    """Of two models without holes the one with more servers gains less by another one, however many there are."""
    for few in range(1, 12):
        poor, rich = (
            named(name, model(8, *(server(f"{name}{n}", 0, 8) for n in range(count))))
            for name, count in (("a-poor", few), ("rich", few + 1))
        )
        for better in ([Demand(poor, 1.0, 8), Demand(rich, 1.0, 8)], [Demand(rich, 1.0, 8), Demand(poor, 1.0, 8)]):
            ranking = choose_model(better)
            assert [choice.prefix for choice in ranking] == ["a-poor", "rich"]
            assert ranking[0].worth > ranking[1].worth > 0
        assert choose_model([Demand(poor, 1.0, 8), Demand(rich, 9.0, 8)])[0].prefix == "rich"


def test_a_model_that_does_not_run_comes_before_one_that_would_be_surer() -> None:
    single = named("a-single", model(8, server("s", 0, 8)))
    first, second = choose_model([Demand(single, 1.0, 8), Demand(BROKEN, 1.0, 8)])
    assert (first.prefix, second.prefix) == ("broken", "a-single")
    assert why_chosen((first, second)) == "broken: blocks 4–7 have no server; it gains more by this server than a-single"


def test_where_models_gain_alike_the_server_s_own_order_decides() -> None:
    empty = [Demand(named(name, model(8)), 1.0, 8) for name in ("second", "first")]
    for demands in (empty, empty[::-1]):
        ranking = choose_model(demands)
        assert ranking[0].prefix == demands[0].model.prefix
        assert "it gains no less by this server than" in why_chosen(ranking)


def test_of_models_that_gain_alike_the_one_on_the_disk_is_served_with_the_blocks_that_are_there() -> None:
    first, second = (named(name, model(8, server("a", 0, 8), server("b", 0, 8))) for name in ("first", "second"))
    here = suffixes([Span(2, 6)], 8)
    ranking = choose_model([Demand(first, 1.0, 4), Demand(second, 1.0, 4, on_disk=here)])
    assert (ranking[0].prefix, ranking[0].placement.span) == ("second", Span(2, 6))
    partly = choose_model([Demand(first, 1.0, 4), Demand(second, 1.0, 4, on_disk=suffixes([Span(2, 5)], 8))])
    assert partly[0].prefix == "first", "three blocks of four spare no download"


def test_a_disk_makes_up_for_no_model_that_needs_the_server_more_and_for_none_that_nobody_wants() -> None:
    rich_on_disk = Demand(RICH, 1.0, 4, on_disk=suffixes([Span(0, 8)], 8))
    assert choose_model([rich_on_disk, Demand(BROKEN, 1.0, 4)])[0].prefix == "broken"
    unwanted = replace(rich_on_disk, weight=0.0)
    other = named("other", RICH)
    assert choose_model([unwanted, Demand(other, 1.0, 4)])[0].prefix == "other"


def test_the_one_is_asked_to_change_that_has_the_other_model_on_its_disk() -> None:
    demands = [Demand(RICH, 1.0, 1), Demand(BROKEN, 1.0, 1)]
    for name in ("r0", "r1", "r2", "r3"):
        (move,) = transfers(demands, everyone, disks=lambda peer, prefix, name=name: disk_of(peer, prefix, name))  # type: ignore[misc]
        assert move.peer_id == peer_id(name)


def disk_of(peer: str, prefix: str, name: str) -> tuple[Span, ...]:
    return suffixes([Span(4, 8)], 8) if (peer, prefix) == (peer_id(name), "broken") else ()


@settings(max_examples=40, deadline=None)
@given(crowds(), crowds(), st.data())
def test_nobody_is_given_more_blocks_of_a_model_than_fit_it_nor_a_model_that_it_cannot_serve(
    one: Model, other: Model, data: st.DataObject
) -> None:
    """Blocks of two models are of two sizes, whatever a server serves now and whatever lies on its disk."""
    renamed = tuple(replace(s, peer_id=peer_id(s.peer_id)) for s in other.servers)
    models = {"one": named("one", one), "other": named("other", replace(other, servers=renamed))}
    ids = [s.peer_id for m in models.values() for s in m.servers]
    fits = {(name, prefix): data.draw(st.integers(0, 6)) for name in ids for prefix in models}
    starts = st.integers(0, 5)
    there = {key: tuple(Span(at, at + 6) for at in data.draw(st.lists(starts, max_size=2))) for key in fits}
    demands = [Demand(m, 1.0, 1) for m in models.values()]
    for move in transfers(demands, lambda *key: fits[key], disks=lambda *key: there[key]):
        assert 0 < len(move.placement.span) <= fits[move.peer_id, move.target]
        assert move.placement.span.end <= models[move.target].num_blocks
    sizes = {prefix: data.draw(st.integers(0, 6)) for prefix in models}
    ranking = choose_model(Demand(m, 1.0, sizes[p], on_disk=(Span(0, 9),)) for p, m in models.items())
    assert {choice.prefix for choice in ranking} == {prefix for prefix, size in sizes.items() if size}
    for choice in ranking:
        assert 0 < len(choice.placement.span) <= sizes[choice.prefix]


def test_a_transfer_is_looked_at_again_in_both_models() -> None:
    source, target = Demand(RICH, 1.0, 1), Demand(BROKEN, 1.0, 1)
    (move,) = transfers([source, target], everyone)

    def still(source: Demand = source, target: Demand = target) -> str | None:
        return objection(source, target, move.peer_id, move.origin, move.placement.span)

    assert still() is None
    alone = replace(RICH, servers=tuple(s for s in RICH.servers if s.peer_id == move.peer_id))
    assert still(source=replace(source, model=alone)) == "without this server blocks 0–7 have no server of rich"
    others = tuple(Promise(s.peer_id, Span(0, 4)) for s in RICH.servers if s.peer_id != move.peer_id)
    assert "blocks 0–7 have no server" in str(still(source=replace(source, promises=others))), "the others are about to move"
    elsewhere = replace(source, model=replace(RICH, num_blocks=9))
    assert still(source=elsewhere) == "block 8 has no server of rich, which this server serves"
    promised = replace(target, promises=(Promise(peer_id("x"), Span(4, 8)),))
    assert still(target=promised) == "blocks 4–7 of broken have been given a server meanwhile"


@settings(max_examples=60)
@given(crowds(), st.data())
def test_what_a_server_gives_is_the_difference_that_it_makes(swarm: Model, data: st.DataObject) -> None:
    """As reckoned from the whole ground with it and without it; never negative, and never more than there is."""
    networks = {s.peer_id: data.draw(st.sampled_from(["north", "south"])) for s in swarm.servers if data.draw(st.booleans())}
    known = Circumstances(operators=networks)
    present = planned(swarm, ())
    # Who does not say its rate counts as a usual server: a usual one of all of them, also when one is gone.
    holders = [h if h.throughput is not None else h._replace(throughput=stand_in(present)) for h in present]
    if len(holders) < 2:
        return
    row = data.draw(st.integers(0, len(holders) - 1))
    ground = survey(swarm.num_blocks, holders, known)
    given = gained(ground, row)
    assert 0.0 <= given <= 1.0 + THROUGHPUT_COUNTS
    rest = replace(survey(swarm.num_blocks, holders[:row] + holders[row + 1 :], known), ideal=ground.ideal)
    if (rest.held[ground.held > 0] > 0).all():
        slower = worth(rest.phi(0.0), swarm.num_blocks) / worth(ground.phi(0.0), swarm.num_blocks)
        surer = float((rest.alone - ground.alone).mean())
        assert given == pytest.approx(surer + THROUGHPUT_COUNTS * max(0.0, 1.0 - slower), abs=0.02)


@settings(max_examples=40)
@given(crowds(), crowds(), st.floats(0.1, 10.0), st.data())
def test_in_a_plan_with_promises_and_transfers_no_model_ever_loses_a_block(
    one: Model, other: Model, weight: float, data: st.DataObject
) -> None:
    """Step by step, as servers leave and before the next one is online; and nobody who has come is sent back."""
    renamed = tuple(replace(s, peer_id=peer_id(s.peer_id)) for s in other.servers)
    models = {"one": named("one", one), "other": named("other", replace(other, servers=renamed))}
    movers = [data.draw(st.sampled_from([s.peer_id for s in m.servers] or [""])) for m in models.values()]
    promises = {
        prefix: (Promise(mover, Span(0, 1)),) if mover and data.draw(st.booleans()) else ()
        for (prefix, mover) in zip(models, movers, strict=True)
    }
    demands = [Demand(models[prefix], weight if prefix == "other" else 1.0, 1, promises[prefix]) for prefix in models]
    held = {prefix: find_holes(models[prefix], promises[prefix]) for prefix in models}
    moves = transfers(demands, everyone)
    for move in moves:
        assert move.peer_id not in {promise.peer_id for promise in promises[move.source]}
        models[move.source] = without(models[move.source], move.peer_id)
        assert find_holes(models[move.source], promises[move.source]) == held[move.source] == ()
        arrived = server("arrived", move.placement.span.start, move.placement.span.end)
        there = models[move.target]
        models[move.target] = replace(there, servers=(*there.servers, replace(arrived, peer_id=move.peer_id)))
        filled = find_holes(models[move.target], promises[move.target])
        assert sum(map(len, filled)) < sum(map(len, held[move.target]))
        held[move.target] = filled
    again = transfers([replace(demand, model=models[demand.model.prefix]) for demand in demands], everyone)
    assert not {move.peer_id for move in again} & {move.peer_id for move in moves}


@settings(max_examples=40, deadline=None)
@given(crowds(), crowds(), st.floats(0.1, 10.0))
def test_no_transfer_opens_a_hole_or_empties_a_block_of_online_servers(one: Model, other: Model, weight: float) -> None:
    models = {"one": named("one", one), "other": named("other", other)}
    other_names = replace(models["other"], servers=tuple(replace(s, peer_id=peer_id(s.peer_id)) for s in other.servers))
    models["other"] = other_names
    demands = [Demand(models["one"], 1.0, 1), Demand(models["other"], weight, 1)]
    moves = transfers(demands, everyone)
    assert moves == transfers(list(reversed(demands)), everyone), "the order of models decides nothing"
    for prefix, swarm in models.items():
        gone = {move.peer_id for move in moves if move.source == prefix}
        left = replace(swarm, servers=tuple(s for s in swarm.servers if s.peer_id not in gone))
        assert not gone or find_holes(left) == find_holes(swarm)
        for leaver in (s for s in swarm.servers if s.peer_id in gone):
            for block in leaver.span:
                assert any(s.state is PeerState.ONLINE and block in s.span for s in left.servers) or block >= swarm.num_blocks
