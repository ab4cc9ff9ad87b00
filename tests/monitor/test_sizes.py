"""A model's size: what the index says, what servers prove, what stood; and that "runs" is never said of a size nobody names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.crawl import CrawlReport, crawl
from monitor.sizes import Evidence, Size, Stood, settled
from monitor.wanted import NOT_SIZED_YET, SIZED_AT_ONCE, SIZED_UP_TO
from swarm.coverage import Verdict, coverage
from swarm.snapshot import Entry, Model, Outcome, Reading, Snapshot, Visit
from swarm.wire.keys import MODELS_KEY, block_uid
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span
from tests.monitor.test_crawl import MadeUpReader
from tests.swarms import peer_id

GOOD = {"num_blocks": 9, "repository": "https://huggingface.co/org/m"}
BAD = [9, "x"]
LATE = 4e9
"""When records run out: after anything that happens here."""
NOBODY_KNOWS = "how many the model has is not known"


class Swarm(MadeUpReader):
    """One whose block keys are read as far as they are asked for, and whose servers answer for what they announce."""

    def __init__(self, prefix: str = "m") -> None:
        super().__init__({}, {})
        self.prefix = prefix
        self.entries: list[Entry] = []
        self.servers: dict[str, Span] = {}
        self.silent: set[str] = set()
        self.last: Snapshot | None = None
        self.at = 5.0
        self.look_for: tuple[str, ...] = ()

    def index_says(self, *values: object, prefix: str = "") -> None:
        self.entries = [Entry(prefix or self.prefix, value, LATE + n) for n, value in enumerate(values)]

    async def read_index(self) -> Reading:
        return Reading({MODELS_KEY: self.entries})

    async def read_blocks(self, models: Mapping[str, int], heard: object = None) -> dict[str, Reading]:
        keys: dict[str, list[Entry]] = {}
        for name, span in self.servers.items():
            record = ServerRecord(ServerState.ONLINE, 1.0, span).to_wire()
            for block in span:
                keys.setdefault(block_uid(self.prefix, block), []).append(Entry(peer_id(name), record, LATE))
        return {
            prefix: Reading({uid: keys[uid] for uid in (block_uid(prefix, b) for b in range(count)) if uid in keys})
            for prefix, count in models.items()
        }

    async def visit(self, peer: str, prefix: str, span: Span) -> Visit:
        silent = peer in {peer_id(name) for name in self.silent}
        return Visit(peer, self.at, Outcome.TIMEOUT if silent else Outcome.ANSWERED, span=span)

    async def report(self) -> CrawlReport:
        """One crawl more, which remembers the one before as the site does."""
        known = {m.prefix: ModelRecord(m.num_blocks, m.repository) for m in self.last.models} if self.last else {}
        found = await crawl("main", self, lambda: self.at, known, self.last, self.look_for)
        assert found.snapshot is not None
        self.last, self.at = found.snapshot, self.at + 30
        return found

    async def crawl(self) -> Model:
        found = await self.report()
        assert found.snapshot is not None
        model = found.snapshot.model(self.prefix)
        assert model is not None
        return model


async def test_a_model_sized_by_its_keys_is_never_said_to_run() -> None:
    swarm = Swarm()
    swarm.index_says(BAD)
    swarm.servers = {"a": Span(0, 3), "b": Span(0, 3)}
    model = await swarm.crawl()
    assert (model.num_blocks, model.at_least) == (3, True)
    assert coverage(model).verdict is Verdict.UNKNOWN
    assert coverage(model).sentence() == f"unknown: at least 3 blocks seen; {NOBODY_KNOWS}"
    assert "its size is what its block keys show" in model.conflict


async def test_a_size_from_keys_gives_way_to_the_index_as_soon_as_that_can_be_read() -> None:
    swarm = Swarm()
    swarm.index_says(BAD)
    swarm.servers = {"a": Span(0, 3)}
    await swarm.crawl()
    swarm.index_says(GOOD)
    for _ in range(2):
        model = await swarm.crawl()
        assert (model.num_blocks, model.at_least, model.repository) == (9, False, GOOD["repository"])
        assert coverage(model).sentence() == "cannot run: blocks 3–8 have no server"


async def test_a_private_model_grows_with_the_servers_that_answer() -> None:
    swarm = Swarm("_mine")
    swarm.look_for = ("_mine",)
    swarm.servers = {"a": Span(0, 3)}
    assert (await swarm.crawl()).num_blocks == 3
    swarm.servers["b"] = Span(3, 9)
    model = await swarm.crawl()
    assert (model.num_blocks, model.at_least, len(model.servers)) == (9, True, 2)
    swarm.silent = {"b"}
    model = await swarm.crawl()
    assert model.num_blocks == 9 and coverage(model).verdict is Verdict.BROKEN, "what was proved once is a hole when it goes"


@pytest.mark.parametrize("forged", [[{"num_blocks": 2}], [GOOD, {"num_blocks": 2}], [{"num_blocks": 2}, GOOD]], ids=str)
async def test_a_forged_small_size_is_disproved_by_whoever_answers_beyond_it(forged: list[object]) -> None:
    swarm = Swarm()
    swarm.servers = {"a": Span(0, 3), "b": Span(3, 9)}
    swarm.index_says(*forged)
    model = await swarm.crawl()
    assert model.num_blocks == 9 and len(model.servers) == 2
    assert model.conflict == "the index of models says 2 blocks, but a server has answered for block 8"
    assert model.at_least is (GOOD not in forged)
    swarm.index_says(GOOD)
    for _ in range(2):
        model = await swarm.crawl()
        assert (model.num_blocks, model.at_least, model.conflict) == (9, False, "")
        assert model.repository == GOOD["repository"]


async def test_a_larger_size_that_nobody_proves_is_a_conflict_and_no_downtime() -> None:
    swarm = Swarm()
    swarm.servers = {"a": Span(0, 9), "b": Span(0, 9), "liar": Span(9, 31)}
    swarm.silent = {"liar"}
    swarm.index_says(GOOD)
    assert coverage(await swarm.crawl()).verdict is Verdict.COMPLETE
    for said in ([{"num_blocks": 31}], [GOOD, {"num_blocks": 31}]):
        swarm.index_says(*said)
        model = await swarm.crawl()
        assert (model.num_blocks, model.at_least) == (9, False)
        assert model.conflict == "the index of models also says 31 blocks; 9 stands"
        assert coverage(model).verdict is Verdict.COMPLETE and not model.unread_blocks
    swarm.silent = set()
    model = await swarm.crawl()
    assert (model.num_blocks, len(model.servers)) == (31, 3), "it answers: then it is part of the model"


async def test_two_sizes_at_first_sight_that_nobody_settles_are_not_decided_by_who_wrote_last() -> None:
    swarm = Swarm()
    swarm.servers = {"a": Span(0, 3), "b": Span(0, 3)}
    swarm.index_says({"num_blocks": 9}, {"num_blocks": 3})
    model = await swarm.crawl()
    assert (model.num_blocks, model.at_least) == (3, True) and "says 3 and 9 blocks" in model.conflict
    assert coverage(model).verdict is Verdict.UNKNOWN
    swarm.index_says({"num_blocks": 3})
    model = await swarm.crawl()
    assert (model.num_blocks, model.at_least, model.conflict) == (3, False, "")


async def test_keys_that_nobody_answers_for_do_not_make_a_model_large_for_ever() -> None:
    swarm = Swarm("_mine")
    swarm.look_for = ("_mine",)
    swarm.servers, swarm.silent = {"forger": Span(0, 200)}, {"forger"}
    assert (await swarm.crawl()).num_blocks == 200
    swarm.servers["a"] = Span(0, 3)
    assert (await swarm.crawl()).num_blocks == 3


async def test_a_configured_prefix_is_read_however_much_junk_stands_in_the_index() -> None:
    swarm = Swarm("_mine")
    swarm.look_for = ("_mine",)
    swarm.entries = [Entry(f"00junk{n:02}", 5, LATE) for n in range(3 * SIZED_AT_ONCE)]
    swarm.servers = {"a": Span(0, 3)}
    report = await swarm.report()
    assert report.snapshot is not None and [model.prefix for model in report.snapshot.models] == ["_mine"]
    waiting = [record for record in report.snapshot.dropped if record.reason == NOT_SIZED_YET]
    assert len(waiting) == 2 * SIZED_AT_ONCE and "in turns" in waiting[0].detail


async def test_prefixes_without_a_usable_size_are_looked_through_in_turns() -> None:
    """The last of 25 is found at the fourth check, though the 24 before it stay as they are."""
    swarm = Swarm("zz")
    swarm.entries = [Entry(f"junk{n:02}", 5, LATE) for n in range(3 * SIZED_AT_ONCE)] + [Entry("zz", 5, LATE)]
    swarm.servers = {"a": Span(0, 3)}
    for turn in range(3):
        report = await swarm.report()
        assert report.snapshot is not None and report.snapshot.models == (), turn
    assert (await swarm.crawl()).num_blocks == 3


async def test_a_bad_entry_of_a_model_whose_size_stood_leaves_the_size_alone() -> None:
    swarm = Swarm()
    swarm.servers = {"a": Span(0, 9)}
    swarm.index_says(GOOD)
    await swarm.crawl()
    swarm.index_says(BAD)
    model = await swarm.crawl()
    assert (model.num_blocks, model.at_least) == (9, False) and "cannot be used" in model.conflict


async def test_no_more_block_keys_are_read_than_there_could_be() -> None:
    asked: list[Mapping[str, int]] = []

    class Counting(Swarm):
        async def read_blocks(self, models: Mapping[str, int], heard: object = None) -> dict[str, Reading]:
            asked.append(dict(models))
            return await super().read_blocks(models)

    swarm = Counting()
    swarm.servers = {"a": Span(0, 9)}
    swarm.index_says(GOOD)
    await swarm.crawl()
    assert asked == [{"m": 10}], "one key more, under which somebody would stand if it were larger"
    swarm.servers["b"] = Span(9, 12)
    await swarm.crawl()
    assert asked[1:] == [{"m": 10}, {"m": SIZED_UP_TO}]


sizes = st.integers(1, 12)


@given(
    before=st.none() | st.builds(Stood, sizes, st.booleans(), st.booleans()),
    claims=st.frozensets(sizes, max_size=3),
    proved=st.integers(0, 12),
    announced=st.integers(0, 12),
    remembered=st.integers(0, 12),
    ruled_out=st.integers(0, 12),
)
def test_no_size_is_smaller_than_what_was_proved_and_none_is_certain_that_the_index_does_not_name(
    before: Stood | None, claims: frozenset[int], proved: int, announced: int, remembered: int, ruled_out: int
) -> None:
    found = settled(before, Evidence(claims, proved, announced, remembered, ruled_out))
    if found is None:
        assert before is None and not claims and not proved and not announced
        return
    assert found.num_blocks >= proved
    named = claims | ({before.num_blocks} if before is not None and not before.at_least else set())
    assert found.at_least or found.num_blocks in named
    assert found.conflict or claims <= {found.num_blocks}, "whatever the index says against what stands is shown"
    if before is not None and before.at_least and before.proved:
        assert found.num_blocks >= min(before.num_blocks, max(remembered, proved)), "who counts takes nothing with him"
    if before is None or ruled_out < before.num_blocks or remembered >= before.num_blocks:
        assert found == settled(before, Evidence(claims, proved, announced)), "only a size that is theirs alone falls"


def test_a_model_that_nobody_says_anything_of_is_none() -> None:
    assert settled(None, Evidence()) is None
    assert settled(Stood(4), Evidence()) == Size(4)
    assert settled(Stood(4, at_least=True), Evidence()) == Size(4, True)
