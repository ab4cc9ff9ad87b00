"""What a doubtful crawl does to what is published: nothing, until it is confirmed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from monitor import queries, rounds
from monitor.crawl import CrawlReport
from monitor.models import Crawl
from monitor.progress import Tell, untold
from monitor.sizes import EVERYBODY, Witnesses
from swarm.snapshot import PeerState, Snapshot
from tests.monitor.seeding import NOW, SWARM, announced, failure, online, report, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

WHOLE = model(4, online("a", 0, 4), online("b", 0, 4), online("c", 0, 4))
EMPTY = model(4)


class MadeUpCrawler:
    """Gives the reports that it was given, one after another."""

    def __init__(self, *reports: CrawlReport, elsewhere: CrawlReport | None = None) -> None:
        self.reports, self.elsewhere = list(reports), elsewhere
        self.previous: list[Snapshot | None] = []
        self.witnesses: list[Witnesses] = []
        self.looked_again = 0

    def crawl(
        self,
        swarm: str,
        known: object,
        previous: Snapshot | None = None,
        tell: Tell = untold,
        witnesses: Witnesses = EVERYBODY,
    ) -> CrawlReport | None:
        self.previous.append(previous)
        self.witnesses.append(witnesses)
        return self.reports.pop(0)

    def crawl_elsewhere(
        self, swarm: str, known: object, previous: Snapshot | None = None, witnesses: Witnesses = EVERYBODY
    ) -> CrawlReport | None:
        self.looked_again += 1
        self.witnesses.append(witnesses)
        return self.elsewhere


WHY = "3 of 3 servers were gone at once, though announcements of 3 of them have not run out: the DHT has forgotten them"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries.time, "time", lambda: NOW + 40)


def test_a_held_crawl_leaves_the_last_snapshot_stale_with_the_reason_everywhere(client: Client, now: None) -> None:
    seed(WHOLE)
    stored = rounds.run(SWARM, MadeUpCrawler(report(NOW + 30, EMPTY)))
    assert stored is not None and stored.outcome == "held" and stored.reason == WHY
    seen = queries.watch(SWARM)
    assert seen.published is not None and seen.published.snapshot.at == NOW and seen.published.stale and not seen.sees
    assert seen.published.held == WHY
    assert seen.published.snapshot.models[0].servers[0].state is PeerState.ONLINE
    html = client.get("/m/tiny-hf").content.decode()
    assert f"hard to believe, so it is held back: {WHY}. What you see is from 40 s ago." in html
    assert "cannot run:" not in html and "unknown" in html
    document = client.get("/api/v1/models").json()
    assert (document["stale"], document["held"]) == (True, WHY)
    assert document["last_crawl"]["held"] is True and document["last_crawl"]["succeeded"] is False
    assert document["items"][0]["verdict"] == "unknown"
    metrics = client.get("/metrics").content.decode()
    assert "swarm_held 1.0" in metrics and "swarm_crawl_ok 0.0" in metrics and "swarm_model_complete{" not in metrics


def test_a_real_loss_is_published_by_the_second_crawl(now: None) -> None:
    seed(WHOLE)
    crawler = MadeUpCrawler(report(NOW + 30, EMPTY), report(NOW + 60, EMPTY), report(NOW + 90, EMPTY))
    rounds.run(SWARM, crawler)
    second = rounds.run(SWARM, crawler)
    assert second is not None and second.outcome == "succeeded" and second.confirmed.startswith("a second check found the same")
    seen = queries.watch(SWARM)
    assert seen.published is not None and seen.published.snapshot.at == NOW + 60 and not seen.published.held
    third = rounds.run(SWARM, crawler)
    assert third is not None and (third.outcome, third.confirmed) == ("succeeded", ""), "nothing is in doubt any more"


def test_a_dht_that_comes_back_empty_after_a_long_blindness_is_not_believed_before_its_servers_could_be_back(now: None) -> None:
    """As recorded: all bootstrap peers die and come back, and the records have run out meanwhile (60 s after the look)."""
    seed(WHOLE)
    unseen = report(NOW + 35, EMPTY)
    dark = replace(unseen, bootstraps=dict.fromkeys(unseen.bootstraps, False))
    looks = [report(NOW + after, EMPTY) for after in (300, 320, 340, 370, 400)]
    crawler = MadeUpCrawler(dark, failure(NOW + 60), *looks, elsewhere=report(NOW + 301, EMPTY))
    stored = [rounds.run(SWARM, crawler) for _ in range(2)]
    assert stored[0] is not None and stored[0].suspicion == "bootstraps"
    for _ in range(2):
        found = rounds.run(SWARM, crawler)
        assert found is not None and (found.outcome, found.suspicion) == ("held", "forgotten")
    for _ in looks[2:]:
        found = rounds.run(SWARM, crawler)
    assert found is not None and found.outcome == "succeeded", "a loss that lasts is believed in the end"


def test_with_another_entry_peer_a_loss_is_settled_at_once(now: None) -> None:
    seed(WHOLE)
    crawler = MadeUpCrawler(report(NOW + 30, EMPTY), elsewhere=report(NOW + 32, WHOLE))
    stored = rounds.run(SWARM, crawler)
    assert stored is not None and stored.outcome == "succeeded" and crawler.looked_again == 1
    assert queries.latest_snapshot(SWARM).snapshot.models[0].servers  # type: ignore[union-attr]
    both = MadeUpCrawler(report(NOW + 60, EMPTY), elsewhere=report(NOW + 62, EMPTY))
    stored = rounds.run(SWARM, both)
    assert stored is not None and stored.outcome == "succeeded" and "another bootstrap peer shows the same" in stored.confirmed


def test_a_believable_crawl_is_not_repeated(now: None) -> None:
    crawler = MadeUpCrawler(report(NOW, WHOLE))
    rounds.run(SWARM, crawler)
    assert crawler.looked_again == 0 and Crawl.objects.get().outcome == "succeeded"


def test_a_failed_crawl_after_a_held_one_does_not_end_the_doubt(now: None) -> None:
    seed(WHOLE)
    crawler = MadeUpCrawler(report(NOW + 20, EMPTY), failure(NOW + 30))
    rounds.run(SWARM, crawler)
    rounds.run(SWARM, crawler)
    published = queries.latest_snapshot(SWARM)
    assert published is not None and published.held and published.crawl_failure == "p2pd does not answer"


def test_servers_that_vanished_without_a_word_are_remembered_and_those_that_left_are_not(now: None) -> None:
    left = replace(announced("l", 0, 4, PeerState.LEAVING))
    seed(model(4, online("a", 0, 4), online("b", 0, 4), online("c", 0, 4), left), at=NOW)
    seed(model(4, online("a", 0, 4), online("b", 0, 4)), at=NOW + 30)
    crawler = MadeUpCrawler(report(NOW + 60, WHOLE))
    rounds.run(SWARM, crawler)
    (before,) = crawler.previous
    assert before is not None
    assert {server.peer_id for server in before.models[0].servers} == {peer_id("a"), peer_id("b"), peer_id("c")}
