"""The one comparison of the history with a plain recount: what the figures say of a trace must be what the recount says.

Each trace is stored and rolled up, now and then on the way as well, and then forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import transaction
from django.test import override_settings
from hypothesis import note

from monitor.history import rollups, uptime
from monitor.history.minutes import moment
from monitor.models import WatchedModel
from monitor.store import store
from tests.monitor.seeding import SWARM
from tests.monitor.traces import BLOCKS, START, Look, Recount, crawls, recount


def roll_up(at: float) -> None:
    rollups.roll_up(moment(at))


@contextmanager
def remembered(
    trace: Sequence[Look], interval_s: float, start: float = START, blocks: int = BLOCKS
) -> Iterator[tuple[int | None, float]]:
    """For as long as the block lasts the history has seen the trace: the number of its model, None where no look was of any,
    and the last moment of it."""
    with override_settings(SEPAL_CRAWL_INTERVAL_S=float(interval_s)), transaction.atomic():
        at = start
        for number, crawl in enumerate(crawls(trace, start, blocks)):
            store(crawl)
            at = max(at, crawl.finished_at)
            if number % 7 == 3:
                roll_up(crawl.finished_at)
        roll_up(at)
        yield WatchedModel.objects.filter(prefix="tiny-hf").values_list("pk", flat=True).first(), at
        transaction.set_rollback(True)


def compare(trace: Sequence[Look], interval_s: float, start: float = START, blocks: int = BLOCKS) -> None:
    note("\n".join(map(repr, trace)))
    with remembered(trace, interval_s, start, blocks) as (model, at):
        agree(recount(trace, interval_s, start, blocks), model, at, blocks)


def agree(expected: Recount, model: int | None, at: float, blocks: int = BLOCKS) -> None:
    """Of the model, of each block and of each server."""
    if model is None:
        assert not expected.watched
        return
    minutes = uptime.total(uptime.model_days(SWARM, at)["tiny-hf"])
    assert minutes == uptime.Tally(*map(len, (expected.watched, expected.broken, expected.thin, expected.unknown)))
    _agree_of_blocks(model, blocks, at, expected)
    _agree_of_servers(model, at, expected)
    assert uptime.swarm_watched(SWARM, at)[0] == len(expected.watched)


def _agree_of_blocks(model: int, blocks: int, at: float, expected: Recount) -> None:
    found = uptime.block_tallies(model, blocks, at)
    for word, counted in (
        ("missing", [block.broken for block in found]),
        ("thin", [block.thin for block in found]),
        ("unread", [block.unknown for block in found]),
    ):
        assert counted == [len(expected.blocks[word].get(b, ())) for b in range(blocks)], word
    assert {block.watched for block in found} == {len(expected.watched)}


def _agree_of_servers(model: int, at: float, expected: Recount) -> None:
    for name in {*expected.up, *expected.down}:
        up, down = len(expected.up.get(name, ())), len(expected.down.get(name, ()))
        found = uptime.peer_uptime(model, name, at)
        assert (found.up, found.known) == (up, up + down) if found else (up, down) == (0, 0)
