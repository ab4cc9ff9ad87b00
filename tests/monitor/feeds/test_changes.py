"""What the stream tells is the difference between two states, and never a guess."""

from __future__ import annotations

from monitor.feeds.changes import Kind, Told, block_changes, changes


def test_neighbouring_blocks_with_the_same_change_are_one_event() -> None:
    found = list(block_changes({"m": [2, 2, 2, 1]}, {"m": [1, 1, 2, 0]}, "t"))
    assert [(c["start"], c["end"], c["from"], c["to"]) for c in found] == [(0, 2, 2, 1), (3, 4, 1, 0)]


def test_a_block_that_could_not_be_read_has_not_changed() -> None:
    assert list(block_changes({"m": [2, None]}, {"m": [None, 1]}, "t")) == []


def test_a_model_that_is_new_has_no_changed_blocks() -> None:
    assert list(block_changes({}, {"m": [1]}, "t")) == []


def test_the_last_run_of_one_model_does_not_reach_into_the_next() -> None:
    found = list(block_changes({"a": [1], "b": [1, 1]}, {"a": [0], "b": [0, 1]}, "t"))
    assert [(c["model"], c["start"], c["end"]) for c in found] == [("a", 0, 1), ("b", 0, 1)]


def test_a_blind_monitor_tells_that_it_is_blind_and_nothing_about_blocks() -> None:
    before = Told("12:00", False, {"m": [2]})
    said = changes(before, Told("12:00", True, {"m": [2]}), {"stale": True}, [])
    assert [kind for kind, _ in said] == [Kind.SNAPSHOT]


def test_what_was_told_is_not_told_again() -> None:
    same = Told("12:00", False, {"m": [2]}, (1,))
    assert changes(same, same, {}, []) == []
