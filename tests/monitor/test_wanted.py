"""Which models one crawl reads: no flood of names takes the place of a model that is served, or keeps a new one waiting."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from monitor import wanted as module
from monitor.crawl import crawl
from monitor.sizes import Stood
from monitor.wanted import SIZED_UP_TO, Wanted, beyond, wanted
from swarm.snapshot import Entry, Index, Outcome, PeerState, Reading, Snapshot, Visit
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.monitor.test_crawl import MadeUpReader
from tests.swarms import peer_id

KEYS = 600
HONEST = 80


@pytest.fixture(autouse=True)
def _few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", KEYS)


def index_of(**sizes: int | tuple[int, ...]) -> Index:
    said = {prefix: size if isinstance(size, tuple) else (size,) for prefix, size in sizes.items()}
    claims = {prefix: {size: ModelRecord(size, None) for size in each} for prefix, each in said.items()}
    return Index({prefix: ModelRecord(each[0], None) for prefix, each in said.items()}, claims=claims)


def junk(count: int, size: int, name: str = "a") -> dict[str, int]:
    return {f"{name}{n:04}": size for n in range(count)}


def chosen(
    index: Index, *served: str, before: Mapping[str, Stood] | None = None, look_for: tuple[str, ...] = (), seed: int = 1
) -> Wanted:
    return wanted(index, before or {}, look_for, served, None, random.Random(seed).random)


@pytest.mark.parametrize("size", [1, 3, 200])
def test_a_model_that_was_ever_served_is_read_before_any_that_was_not(size: int) -> None:
    found = chosen(index_of(honest=HONEST, **junk(700, size)), "honest", before={"honest": Stood(HONEST)})
    assert found.keys["honest"] == HONEST
    assert sum(found.keys.values()) <= KEYS and any("a0" in record.subkey for record in found.too_many)


def test_what_the_operator_has_named_comes_before_all() -> None:
    served = junk(700, 1)
    assert chosen(index_of(**served), *served, look_for=("_mine",)).keys["_mine"] == SIZED_UP_TO


def test_one_server_that_answers_for_hundreds_of_models_takes_neither_the_older_one_nor_all_that_is_left() -> None:
    flood = junk(700, 1)
    found = chosen(index_of(honest=HONEST, new=HONEST, **flood), "honest", *flood)
    assert found.keys["honest"] == HONEST, "the longest known first"
    assert found.keys["new"] == HONEST, "a quarter is left to those that nobody has answered for yet"


@pytest.mark.parametrize("size", [1, 3, 80, 200])
def test_on_an_empty_database_a_model_is_read_after_as_many_crawls_as_all_together_take(size: int) -> None:
    """What was read stands from then on, and waits behind what never was."""
    index = index_of(honest=HONEST, **junk(700, size))
    keys_at_once = KEYS * module.MOST_FOR_EITHER
    bound = int((HONEST + 700 * size) / (keys_at_once - size)) + 2
    before: dict[str, Stood] = {}
    for turn in range(bound):
        found = chosen(index, before=before, seed=turn)
        if "honest" in found.keys:
            return
        before.update((prefix, Stood(count)) for prefix, count in found.keys.items())
    raise AssertionError("it was never read")


@pytest.mark.parametrize("size", [3, 440])
def test_names_that_are_new_at_each_crawl_are_dealt_the_same_chance_for_each_key(size: int) -> None:
    """They are never known, sort first, and are as small or as many keys as they like: of 400 crawls about ten read it."""
    seeds = range(400)
    assert sum("honest" in chosen(index_of(honest=HONEST, **junk(200, size, f"a{n}-")), seed=n).keys for n in seeds) >= 6


def test_those_that_are_served_get_the_size_that_they_would_like_before_the_others() -> None:
    index = index_of(honest=(9, 100), other=(1, 80), **junk(440, 1))
    found = chosen(index, "honest", before={"honest": Stood(9), "other": Stood(1)})
    assert (found.keys["honest"], found.keys["other"]) == (100, 1)


def test_of_what_they_would_like_the_least_comes_first() -> None:
    index = index_of(greedy=(10, 590), modest=(10, 20))
    found = chosen(index, "greedy", "modest", before={"greedy": Stood(10), "modest": Stood(10)})
    assert found.keys == {"greedy": 10, "modest": 20} and found.left == KEYS - 30


def test_a_model_that_is_larger_than_thought_is_read_as_far_as_keys_are_left() -> None:
    stands = {p: Reading({block_uid(p, 3): [Entry(peer_id(p), b"", 9.0)]}) for p in ("one", "two")}
    keys = {"one": 3, "two": 3}
    assert beyond(Wanted(keys, 2 * SIZED_UP_TO), stands) == {"one": SIZED_UP_TO, "two": SIZED_UP_TO}
    assert beyond(Wanted(keys, 2 * SIZED_UP_TO - 1), stands) == {"one": SIZED_UP_TO}
    assert beyond(Wanted(keys, SIZED_UP_TO - 1), stands) == {}


class Flooded(MadeUpReader):
    """An honest model of four servers that answer, among as many forged ones as there is room for."""

    def __init__(self) -> None:
        super().__init__({}, {})
        self.forged, self.size, self.silent = 0, 3, False

    async def read_index(self) -> Reading:
        sizes = {"honest": HONEST, **junk(self.forged, self.size)}
        return Reading({MODELS_KEY: [Entry(p, ModelRecord(size, None).to_wire(), 1e9) for p, size in sizes.items()]})

    async def read_blocks(self, models: Mapping[str, int], heard: object = None) -> dict[str, Reading]:
        return {prefix: self._stands(prefix, count) for prefix, count in models.items()}

    def _stands(self, prefix: str, count: int) -> Reading:
        honest = prefix == "honest"
        record = ServerRecord(ServerState.ONLINE, 1.0, Span(0, HONEST if honest else 3)).to_wire()
        names = ["h0", "h1", "h2", "h3"] if honest else [prefix]
        return Reading(
            {block_uid(prefix, b): [Entry(peer_id(n), record, 1e9) for n in names] for b in range(min(count, HONEST))}
        )

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        answers = prefix == "honest" and not self.silent
        return Visit(peer, 5.0, Outcome.ANSWERED if answers else Outcome.NO_ADDRESS, span=span)


async def test_a_flood_of_entries_with_forged_servers_evicts_no_model_whose_servers_answer() -> None:
    reader, last = Flooded(), None
    for step, (forged, size) in enumerate([(0, 3), (200, 3), (200, 3), (200, 4), (200, 4)]):
        reader.forged, reader.size = forged, size
        known = {m.prefix: ModelRecord(m.num_blocks, None) for m in last.models} if last is not None else {}
        report = await crawl("main", reader, lambda: 5.0, known, last)
        last = report.snapshot
        honest = last.model("honest") if last is not None else None
        assert honest is not None and {s.state for s in honest.servers} == {PeerState.ONLINE}, step
    assert last is not None and any(record.reason == "too-many-models" for record in last.dropped)


async def test_a_model_that_was_served_is_read_on_in_a_flood_when_nobody_answers_for_it() -> None:
    """Otherwise its outage would end as "no longer announced"."""
    reader = Flooded()
    reader.forged, reader.silent = 700, True
    remembered = Snapshot("main", 5.0, (), served=("honest",))
    for _ in range(5):
        report = await crawl("main", reader, lambda: 5.0, {"honest": ModelRecord(HONEST, None)}, remembered)
        assert report.snapshot is not None and report.snapshot.model("honest") is not None
