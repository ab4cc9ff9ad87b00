"""Pictures say what the figures say: every server once, none over another, no step invented, and never too long."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from monitor.drawing.heat import LIMIT, Minute, heat
from monitor.drawing.packed import BLOCK, ROW, packed
from monitor.drawing.speed import spread, steps
from monitor.drawing.strips import strip
from swarm.wire.spans import Span

BLOCKS = 30
spans = st.integers(0, BLOCKS - 1).flatmap(lambda start: st.builds(Span, st.just(start), st.integers(start + 1, BLOCKS)))


@given(st.lists(spans, max_size=60))
def test_servers_are_packed_into_as_many_rows_as_the_fullest_block_has_and_never_overlap(shown: list[Span]) -> None:
    drawn = packed(BLOCKS, [(span, "online") for span in shown], [])
    depth = max((sum(block in span for span in shown) for block in range(BLOCKS)), default=0)
    assert drawn.height == max(1, depth) * ROW
    lines = [tuple(map(int, found)) for shape in drawn.lines for found in re.findall(r"M(\d+) (\d+)h(\d+)", shape.d)]
    assert sorted((x - 1, x + length + 1) for x, _, length in lines) == sorted(
        (span.start * BLOCK, span.end * BLOCK) for span in shown
    )
    for row in {y for _, y, _ in lines}:
        beside = sorted((x, x + length) for x, y, length in lines if y == row)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(beside))


def test_what_is_not_online_is_an_outline_and_a_hole_a_band() -> None:
    drawn = packed(10, [(Span(0, 4), "online"), (Span(2, 6), "joining"), (Span(8, 99), "unreachable")], [Span(6, 8)])
    assert [shape.level for shape in drawn.lines] == ["online"]
    assert [shape.level for shape in drawn.boxes] == ["joining", "unreachable"]
    assert drawn.bands == ((60, 20),) and drawn.width == 100


def test_a_strip_has_one_path_a_level() -> None:
    (bad, good) = strip(["n6", "n6", "n0", "n6"])
    assert (bad.level, bad.d) == ("n0", "M2 0h1v1h-1z")
    assert (good.level, good.d) == ("n6", "M0 0h2v1h-2zM3 0h1v1h-1z")


def test_the_step_line_is_broken_where_nobody_says_and_marks_the_lowest() -> None:
    shown = steps([200.0, None, 50.0, 100.0])
    assert shown is not None
    assert shown.d == "M0 0h10M20 75h10V50h10" and (shown.low, shown.low_block, shown.top) == (50.0, 2, 200.0)
    assert steps([None, None]) is None


def test_the_spread_names_nearest_ranks_on_a_scale_of_tens() -> None:
    shown = spread([float(value) for value in range(1, 101)])
    assert shown is not None
    assert [(name, value) for _, name, value in shown.marks] == [("p10", 10.0), ("p50", 50.0), ("p90", 90.0)]
    assert (shown.low, shown.high, shown.count) == (1.0, 100.0, 100)
    assert spread([5.0]) is None


def test_a_slot_shows_its_worst_minute_and_what_nobody_watched() -> None:
    minutes = [Minute(0, (), (Span(1, 3),), ()), Minute(0, (Span(1, 2),), (), ()), Minute(2, (), (), (Span(0, 1),))]
    shown = heat(4, 3, minutes)
    assert {shape.level: shape.d for shape in shown.shapes} == {"n0": "M0 1h1", "unknown": "M2 0h1", "n1": "M0 2h1"}
    assert shown.unwatched == ((1, 1),) and not shown.empty
    assert heat(4, 3, []).empty


@given(st.integers(1, 7))
def test_however_torn_the_day_the_picture_stays_small(step: int) -> None:
    torn = [
        Minute(slot, tuple(Span(block, block + 1) for block in range(slot % 2, 500, 2 * step)), (), ()) for slot in range(48)
    ]
    shown = heat(500, 48, torn)
    assert sum(len(shape.d) for shape in shown.shapes) <= LIMIT or shown.slots == 1
    assert shown.shapes[0].level == "n0"
