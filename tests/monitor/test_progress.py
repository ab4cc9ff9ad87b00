"""Before anything is published, pages say how far the first check is, and that nobody reports where nobody does."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from redis.exceptions import ConnectionError as NoRedis

from monitor import live, queries, rounds, tasks, telling
from monitor.crawl import CrawlReport
from monitor.first_check import first_check
from monitor.models import Crawl
from monitor.notices import notices
from monitor.progress import Progress, Stage, Tell, untold
from monitor.published import CrawlFacts, Watch
from monitor.store import store
from swarm.snapshot import Snapshot
from tests.monitor.seeding import NOW, SWARM, failure, online, report, seed
from tests.swarms import model

pytestmark = pytest.mark.django_db
E, M, B, S = Stage.ENTRANCES, Stage.MODELS, Stage.BLOCKS, Stage.SERVERS


@pytest.fixture(autouse=True)
def _nothing_left_from_before(settings: Any) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": uuid.uuid4().hex}}


def watch(progress: Progress | None, last: CrawlFacts | None = None, at: float = NOW) -> Watch:
    return Watch(SWARM, at, 30.0, None, last, progress=progress)


@pytest.mark.parametrize(
    ("stage", "counts", "words"),
    [
        (Stage.STARTING, {}, ": starting a peer of our own…"),
        (E, {E: (0, 3)}, ": asking 3 bootstrap peers…"),
        (E, {E: (2, 3)}, " (bootstrap 2/3)…"),
        (B, {E: (2, 3), M: (2, 2), B: (41, 126)}, " (bootstrap 2/3, 2 models, 41 of 126 blocks read)…"),
        (
            S,
            {E: (1, 1), M: (1, 1), B: (1_600, 1_600), S: (0, 12)},
            " (bootstrap 1/1, 1 model, 1,600 of 1,600 blocks read, 0 of 12 servers asked)…",
        ),
    ],
)
def test_each_stage_has_its_words(stage: Stage, counts: dict[Stage, tuple[int, int]], words: str) -> None:
    progress = Progress(NOW - 12, NOW, stage, counts)
    assert Progress.from_json(progress.as_json()) == progress
    assert first_check(watch(progress)) == f"First check running for 12 s{words}"


def test_a_crawl_that_gives_no_sign_of_life_is_not_said_to_be_running() -> None:
    progress = Progress(NOW - 60, NOW, Stage.BLOCKS, {E: (1, 1), B: (3, 9)})
    assert "running for" in first_check(watch(progress, at=NOW + 15))
    assert first_check(watch(progress, at=NOW + 42)) == "No crawl has reported for 42 s; is the crawl worker running?"


def test_where_none_ever_reported_that_is_said_once_it_is_overdue() -> None:
    nobody = Progress(NOW, NOW)
    assert first_check(watch(nobody, at=NOW + 20)) == "Waiting for the first check; one is due every 30 s."
    assert first_check(watch(nobody, at=NOW + 120)) == "No crawl has reported for 2 min; is the crawl worker running?"
    assert first_check(watch(None)) == "Nothing has been seen of this swarm yet."


def test_after_a_check_that_failed_the_next_one_is_told_beside_its_reason() -> None:
    failed = CrawlFacts(NOW - 40, NOW - 30, failure="p2pd does not answer")
    running = Progress(NOW - 3, NOW, Stage.STARTING, {})
    said = [notice.words for notice in notices(watch(running, failed))]
    assert (
        said[0].startswith("We cannot see the swarm")
        and said[1] == "Another check running for 3 s: starting a peer of our own…"
    )
    idle = [notice.words for notice in notices(watch(Progress(NOW - 5, NOW - 5), failed))]
    assert len(idle) == 1, "between two checks there is nothing to tell"
    overdue = [notice.words for notice in notices(watch(Progress(NOW, NOW), failed, at=NOW + 570))]
    assert overdue[1] == "No crawl has reported for 10 min; is the crawl worker running?"


class InSteps:
    """A crawl that waits at each step until the test has looked."""

    def __init__(self, result: CrawlReport) -> None:
        self.result, self.go_on = result, threading.Semaphore(0)

    def crawl(
        self, swarm: str, known: object, previous: Snapshot | None = None, tell: Tell = untold, *_: object
    ) -> CrawlReport:
        for step in ((E, 1, 1), (M, 1, 1), (B, 2, 4)):
            tell(*step)
        assert self.go_on.acquire(timeout=30)
        return self.result

    def crawl_elsewhere(self, *_: object) -> None:
        return None


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set with each push, as the page would hear it."""
    heard = threading.Event()
    monkeypatch.setattr(telling, "TOLD_EVERY_S", 0.01)
    return heard


def test_the_page_tells_it_while_the_crawl_runs_and_the_snapshot_replaces_it(
    client: Client, monkeypatch: pytest.MonkeyPatch, pushed: threading.Event
) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    crawler = InSteps(report(NOW + 10, model(2, online("a", 0, 2))))
    seen: list[str] = []

    def look() -> None:
        assert pushed.wait(30)
        while not (told := telling.heard(SWARM, NOW + 12)) or Stage.BLOCKS not in told.counts:
            pushed.clear()
            assert pushed.wait(30)
        seen.append(first_check(watch(told, at=NOW + 12)))
        crawler.go_on.release()

    looking = threading.Thread(target=look)
    looking.start()
    assert rounds.run(SWARM, crawler, pushed.set) is not None
    looking.join()
    assert seen == ["First check running for 0 s (bootstrap 1/1, 1 model, 2 of 4 blocks read)…"]
    html = client.get("/").content.decode()
    assert "First check" not in html and "No crawl has reported" not in html and "tiny-hf" in html


def test_what_the_page_says_without_scripts_is_what_was_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 12)
    told = Progress(NOW, NOW + 11, Stage.BLOCKS, {E: (2, 3), M: (2, 2), B: (41, 126)})
    cache.set(telling._key(SWARM), told.as_json())
    words = "First check running for 12 s (bootstrap 2/3, 2 models, 41 of 126 blocks read)… The page fills by itself."
    assert words in client.get("/").content.decode()
    assert not Crawl.objects.exists()


def test_once_something_is_published_nobody_tells_and_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    seed(model(2, online("a", 0, 2)))
    monkeypatch.setattr(telling, "cache", None)
    crawler = InSteps(report(NOW + 30, model(2, online("a", 0, 2, at=NOW + 30))))
    crawler.go_on.release()
    assert rounds.run(SWARM, crawler, lambda: None) is not None
    assert queries.watch(SWARM).progress is None


def test_without_redis_a_crawl_goes_on_and_the_page_comes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def __getattr__(self, _: str) -> Any:
            def refuse(*_: object, **__: object) -> None:
                raise NoRedis("away")

            return refuse

    monkeypatch.setattr(telling, "cache", Away())
    assert "Nothing has been seen of this swarm yet." in client.get("/").content.decode()
    crawler = InSteps(failure(NOW, "p2pd does not answer"))
    crawler.go_on.release()
    assert rounds.run(SWARM, crawler, lambda: None) is not None


def test_a_crawl_that_breaks_down_leaves_nothing_that_says_it_runs() -> None:
    class Broken(InSteps):
        def crawl(self, *_: object, **__: object) -> CrawlReport:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        rounds.run(SWARM, Broken(failure(NOW)), lambda: None)
    told = telling.heard(SWARM, NOW)
    assert told is not None and told.stage is None


def test_while_nothing_is_published_pages_are_pushed_however_quiet_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes: list[str] = []
    monkeypatch.setattr(live, "request_push", pushes.append)
    for _ in range(2):
        tasks.watch_freshness()
    store(failure(NOW))
    tasks.watch_freshness()
    assert pushes == [SWARM] * 3
