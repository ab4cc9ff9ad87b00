"""Two crawl workers watch one swarm, as while one takes over from the other: what is stored late and was seen before is left
out, and is no clock that was set back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from monitor import queries, rounds
from monitor.crawl import CrawlReport
from monitor.history import rollups
from monitor.history.minutes import moment
from monitor.history.models import Incident, ModelMinute, PeerSample, RolledUp, SwarmDay
from monitor.models import Crawl, ServerRow
from monitor.store import store, store_in_turn
from tests.monitor.seeding import NOW, SWARM, failure, report, seed
from tests.monitor.test_clock import torn, whole
from tests.monitor.test_rounds import MadeUpCrawler

pytestmark = pytest.mark.django_db


class Beside(MadeUpCrawler):
    """While it crawls, another worker's crawls begin, end and are stored."""

    def __init__(self, mine: CrawlReport, *others: CrawlReport) -> None:
        super().__init__(mine)
        self.others = others

    def crawl(self, *given: Any) -> CrawlReport | None:
        for other in self.others:
            store(other)
        return super().crawl(*given)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 130)


def everything() -> list[object]:
    tables = (Crawl, ServerRow, ModelMinute, PeerSample, SwarmDay, Incident, RolledUp)
    return [list(table.objects.order_by("pk").values()) for table in tables]


def test_a_crawl_that_another_worker_overtook_touches_nothing_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    seed(whole(NOW))
    rollups.roll_up(moment(NOW + 120))
    found: list[object] = []

    class Watched(Beside):
        def crawl(self, *given: Any) -> CrawlReport | None:
            mine = super().crawl(*given)
            found.append(everything())
            return mine

    with caplog.at_level(logging.WARNING, logger="monitor.rounds"):
        assert rounds.run(SWARM, Watched(report(NOW + 30, torn(NOW + 30)), report(NOW + 120, whole(NOW + 120)))) is None
    assert found == [everything()] and Crawl.objects.count() == 2
    assert "left out: another worker saw the swarm later" in caplog.text
    assert RolledUp.objects.get().until == moment(NOW + 120), "nothing is counted again, as after a clock that was set back"


@pytest.mark.parametrize("kind", ["failed", "held"])
def test_a_late_crawl_in_vain_makes_nobody_doubt_what_was_seen_meanwhile(kind: str) -> None:
    seed(whole(NOW))
    empty = report(NOW + 30, torn(NOW + 30))
    mine = failure(NOW + 30) if kind == "failed" else empty
    crawler = Beside(mine, report(NOW + 120, whole(NOW + 120)))
    assert rounds.run(SWARM, crawler) is None
    seen = queries.watch(SWARM, NOW + 125)
    assert seen.sees and seen.last_crawl is not None and not seen.last_crawl.failure and not seen.last_crawl.held


@pytest.mark.parametrize(
    "mine",
    [report(NOW + 120, whole(NOW + 120)), failure(NOW + 120)],
    ids=["saw it later", "failed later"],
)
def test_a_crawl_that_began_beside_another_and_saw_the_swarm_later_counts(mine: CrawlReport) -> None:
    seed(whole(NOW))
    stored = rounds.run(SWARM, Beside(mine, report(NOW + 30, whole(NOW + 30))))
    assert stored is not None and Crawl.objects.count() == 3


def test_a_clock_that_is_set_back_costs_one_crawl_at_most_where_two_workers_watch() -> None:
    """Of two that ran side by side nobody can tell which clock was which; the next one is alone with what was there before."""
    seed(whole(NOW + 3_600), at=NOW + 3_600)
    assert rounds.run(SWARM, Beside(report(NOW, whole(NOW)), report(NOW + 3_630, whole(NOW + 3_630)))) is None
    assert rounds.run(SWARM, MadeUpCrawler(report(NOW + 30, whole(NOW + 30)))) is not None
    published = queries.watch(SWARM, NOW + 35).published
    assert published is not None and published.snapshot.at == NOW + 30 and not published.stale
    assert not Incident.objects.exists()


def test_after_a_step_what_was_stored_since_is_what_is_compared_with() -> None:
    """The other worker is through the step already: its newest crawl is older than mine, whatever the one before bears."""
    seed(whole(NOW + 3_600), at=NOW + 3_600)
    others = (report(NOW + 3_630, whole(NOW + 3_630)), report(NOW, whole(NOW)))
    assert rounds.run(SWARM, Beside(report(NOW + 30, whole(NOW + 30)), *others)) is not None


@pytest.mark.django_db(transaction=True)
def test_who_is_being_stored_at_the_same_moment_is_waited_for() -> None:
    """Otherwise both would find nobody beside them, and the older one come last."""
    first = store(report(NOW, whole(NOW)))
    began, go_on = threading.Event(), threading.Event()
    outcome: list[Crawl | None] = []

    def held_up(then: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*given: Any) -> Any:
            began.set()
            assert go_on.wait(30)
            return then(*given)

        return wait

    def late() -> None:
        try:
            outcome.append(store_in_turn(report(NOW + 30, whole(NOW + 30)), first.pk))
        finally:
            connection.close()

    def quick() -> None:
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("monitor.store.record", held_up(lambda *_: None))
                store(report(NOW + 120, whole(NOW + 120)))
        finally:
            connection.close()

    other, mine = threading.Thread(target=quick), threading.Thread(target=late)
    other.start()
    assert began.wait(30), "it has the lock, and is not committed"
    mine.start()
    while not _waiting():
        mine.join(0.01)
        assert mine.is_alive(), "it waits for its turn"
    go_on.set()
    other.join()
    mine.join()
    assert outcome == [None] and Crawl.objects.count() == 2


def _waiting() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)")
        return bool(cursor.fetchone()[0])
