"""A crawl that is hard to believe is held back; a loss that is real is confirmed and then published."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.crawl import CrawlReport
from monitor.gate import Held, Hold, Publish, Suspicion, Verdict, applied, judge, lost_between, settle
from monitor.published import CrawlFacts, Published
from swarm.snapshot import Model, Outcome, PeerState, Server
from tests.monitor.seeding import NOW, announced, online, report, unreachable, visited
from tests.swarms import model, peer_id


def published(
    *servers: Server, duration_s: float = 1.0, bootstraps: dict[str, bool] | None = None, run_out_in_s: float = -1.0
) -> Published:
    """The records of its servers run out so many seconds after NOW; by default they are gone by then."""
    servers = tuple(replace(server, expires_at=NOW + run_out_in_s) for server in servers)
    facts = CrawlFacts(NOW - 31, NOW - 31 + duration_s, bootstraps={"b": True} if bootstraps is None else bootstraps)
    snapshot = report(NOW - 30, tiny(*servers)).snapshot
    assert snapshot is not None
    return Published(snapshot, facts, NOW, 30.0)


def tiny(*servers: Server) -> Model:
    return model(12, *servers)


def lot(count: int) -> list[Server]:
    return [online(f"s{n}", n % 12, n % 12 + 1) for n in range(count)]


def held(verdict: Verdict) -> Hold:
    assert isinstance(verdict, Hold)
    return verdict


@pytest.mark.parametrize(("before", "left"), [(12, 0), (12, 6), (2, 0), (100, 49)])
def test_many_servers_gone_at_once_are_held_back_with_their_number(before: int, left: int) -> None:
    verdict = held(judge(published(*lot(before)), report(NOW, tiny(*lot(left)))))
    assert verdict.suspicion is Suspicion.LOSS and verdict.confirmable
    assert verdict.reason == f"{before - left} of {before} servers were gone at once"


@pytest.mark.parametrize(("before", "left"), [(12, 12), (12, 7), (1, 0), (3, 2), (0, 0)])
def test_ordinary_comings_and_goings_are_published_at_once(before: int, left: int) -> None:
    assert judge(published(*lot(before)), report(NOW, tiny(*lot(left)))) == Publish()


def test_servers_whose_announcements_have_not_run_out_were_forgotten_by_the_dht_and_are_no_loss() -> None:
    before, empty = published(*lot(4), run_out_in_s=20), report(NOW, tiny())
    verdict = held(judge(before, empty))
    assert verdict.suspicion is Suspicion.FORGOTTEN and not verdict.confirmable
    assert "announcements of 4 of them have not run out" in verdict.reason
    assert isinstance(judge(before, empty, Held(NOW - 10, Suspicion.FORGOTTEN, verdict.lost)), Hold)
    assert judge(before, report(NOW, tiny(*lot(4)))) == Publish()


def test_two_servers_that_vanish_long_before_their_records_would_hold_nobody_else_back() -> None:
    mine, crowd = tiny(*lot(2)), [online(f"crowd{n}", 0, 12) for n in range(50)]
    long = tuple(replace(server, expires_at=NOW + 900) for server in mine.servers)
    before = published(*crowd)
    before = replace(
        before, snapshot=replace(before.snapshot, models=(tiny(*crowd), replace(mine, prefix="mine", servers=long)))
    )
    doubt = held(judge(before, report(NOW, tiny(*crowd))))
    assert (doubt.suspicion, doubt.confirmable) == (Suspicion.LOSS, True)
    assert isinstance(judge(before, report(NOW, tiny(*crowd)), Held(NOW - 30, doubt.suspicion, doubt.lost)), Publish)


def test_records_that_ran_out_while_the_monitor_was_blind_do_not_make_a_forgetful_dht_a_loss() -> None:
    before = published(*lot(4), run_out_in_s=60)
    first = report(NOW + 600, tiny())
    verdict = held(judge(before, first))
    assert verdict.suspicion is Suspicion.FORGOTTEN and not verdict.confirmable
    assert "announcements of 4 of them had not run out when the swarm was last seen" in verdict.reason
    chosen, again = settle(before, first, verdict, report(NOW + 602, tiny()))
    assert chosen is first and again is verdict, "another bootstrap peer that came back as empty proves nothing"
    earlier = Held(first.started_at, Suspicion.FORGOTTEN, verdict.lost, seeing_since=first.started_at)
    assert held(judge(before, report(NOW + 630, tiny()), earlier)).suspicion is Suspicion.FORGOTTEN
    assert judge(before, report(NOW + 630, tiny(*lot(4))), earlier) == Publish()


def test_what_is_still_gone_when_it_should_have_been_announced_again_is_a_loss() -> None:
    before, late = published(*lot(4), run_out_in_s=60), report(NOW + 700, tiny())
    since = Held(NOW + 670, Suspicion.FORGOTTEN, lost_between(before.snapshot, report(NOW, tiny()).snapshot), NOW + 599)  # type: ignore[arg-type]
    verdict = judge(before, late, since)
    assert isinstance(verdict, Publish) and verdict.confirmed.startswith("a second check found the same")
    doubt = held(judge(before, late, replace(since, lost=frozenset())))
    assert doubt.suspicion is Suspicion.LOSS and doubt.confirmable
    _, settled = settle(before, late, doubt, report(NOW + 702, tiny()), since)
    assert isinstance(settled, Publish) and "another bootstrap peer shows the same" in settled.confirmed


def test_servers_that_refuse_connections_while_their_records_last_have_died() -> None:
    silent = [unreachable(f"s{n}", n, n + 1) for n in range(4)]
    assert held(judge(published(*lot(4), run_out_in_s=20), report(NOW, tiny(*silent)))).suspicion is Suspicion.LOSS


@pytest.mark.parametrize(
    ("small", "left", "held_back"), [(2, 0, True), (2, 1, False), (6, 3, True), (6, 4, False), (1, 0, False)]
)
def test_most_blocks_of_one_model_gone_at_once_are_held_back_however_large_the_others_are(
    small: int, left: int, held_back: bool
) -> None:
    large = tiny(*(online(f"l{n}", 0, 12) for n in range(40)))
    before, after = (replace(tiny(*lot(count)), prefix="small") for count in (small, left))
    run_out = tuple(replace(server, expires_at=NOW - 1) for server in before.servers)
    then = published()
    then = replace(then, snapshot=replace(then.snapshot, models=(large, replace(before, servers=run_out))))
    verdict = judge(then, report(NOW, large, after))
    assert isinstance(verdict, Hold) is held_back
    assert not held_back or held(verdict).confirmable


def test_the_first_snapshot_of_all_is_published_whatever_it_holds() -> None:
    assert judge(None, report(NOW, tiny())) == Publish()
    assert judge(None, report(NOW, tiny(*lot(5)))) == Publish()


PARTING = [PeerState.LEAVING, PeerState.JOINING] * 2


def test_servers_that_stopped_answering_are_lost_and_those_that_say_themselves_that_they_leave_are_not() -> None:
    before = published(*lot(4))
    silent = [unreachable(f"s{n}", n, n + 1) for n in range(4)]
    assert held(judge(before, report(NOW, tiny(*silent)))).suspicion is Suspicion.LOSS
    saying = [visited(announced(f"s{n}", n, n + 1, state)) for n, state in enumerate(PARTING)]
    assert judge(before, report(NOW, tiny(*saying))) == Publish()


@pytest.mark.parametrize("outcome", [None, Outcome.TIMEOUT, Outcome.REFUSED, Outcome.NO_ADDRESS])
def test_records_that_say_of_all_servers_that_they_leave_are_looked_at_twice_where_no_server_says_so(
    outcome: Outcome | None,
) -> None:
    before = published(*lot(4), run_out_in_s=20)
    records = [announced(f"s{n}", n, n + 1, state) for n, state in enumerate(PARTING)]
    silent = report(NOW, tiny(*(visited(server, outcome) if outcome else server for server in records)))
    doubt = held(judge(before, silent))
    assert (doubt.suspicion, doubt.confirmable, len(doubt.lost)) == (Suspicion.LOSS, True, 4)
    assert isinstance(judge(before, silent, Held(NOW - 30, doubt.suspicion, doubt.lost)), Publish), "they have left indeed"
    assert judge(before, report(NOW, tiny(*records[:1], *lot(4)[1:]))) == Publish(), "one server may leave at any time"


def test_an_unread_canary_holds_even_a_crawl_that_looks_well_and_nothing_confirms_it() -> None:
    doubtful = replace(report(NOW, tiny(*lot(4))), canary=False)
    before = published(*lot(4))
    verdict = held(judge(before, doubtful))
    assert verdict.suspicion is Suspicion.CANARY and not verdict.confirmable
    earlier = Held(NOW - 30, Suspicion.CANARY, frozenset())
    assert isinstance(judge(before, doubtful, earlier), Hold)
    assert isinstance(judge(None, doubtful), Hold), "not even the first snapshot may be made of nothing"


def test_a_crawl_that_ends_abnormally_fast_and_misses_servers_is_held_back() -> None:
    slow = published(*lot(12), duration_s=8.5)
    verdict = held(judge(slow, report(NOW, tiny(*lot(10)))))
    assert verdict.suspicion is Suspicion.FAST
    assert verdict.reason == "it ended after 2.0 s where the last one took 8.5 s, and 2 of 12 servers were gone at once"
    assert judge(slow, report(NOW, tiny(*lot(12)))) == Publish(), "fast and whole is only good"


def test_no_bootstrap_peer_is_a_doubt_once_and_a_mass_loss_without_any_is_never_believed() -> None:
    before = published(*lot(4))
    alone = replace(report(NOW, tiny(*lot(4))), bootstraps={"b": False})
    doubt = held(judge(before, alone))
    assert doubt.suspicion is Suspicion.BOOTSTRAPS
    earlier = Held(NOW - 30, doubt.suspicion, doubt.lost)
    assert isinstance(judge(before, alone, earlier), Publish), "the servers answer: the swarm lives without it"
    assert judge(published(*lot(4), bootstraps={"b": False}), alone) == Publish(), "and is not doubted anew each time"
    empty = replace(report(NOW, tiny()), bootstraps={"b": False})
    lost = held(judge(before, empty))
    assert isinstance(judge(before, empty, Held(NOW - 30, lost.suspicion, lost.lost)), Hold)


def test_few_bootstrap_peers_make_even_one_loss_doubtful() -> None:
    few = replace(report(NOW, tiny(*lot(11))), bootstraps={"a": True, "b": False, "c": False})
    assert held(judge(published(*lot(12)), few)).suspicion is Suspicion.BOOTSTRAPS
    half = replace(few, bootstraps={"a": True, "b": False})
    assert judge(published(*lot(12)), half) == Publish()


def test_what_was_not_read_is_not_lost() -> None:
    blind = report(NOW, model(12, unread=frozenset(range(11))))
    verdict = held(judge(published(*lot(12)), blind))
    assert (verdict.suspicion, verdict.confirmable) == (Suspicion.UNREAD, False)


def test_a_second_crawl_that_shows_the_same_loss_confirms_it() -> None:
    before = published(*lot(12))
    first = held(judge(before, report(NOW, tiny())))
    memory = Held(NOW, first.suspicion, first.lost)
    confirmed = judge(before, report(NOW + 30, tiny()), memory)
    assert confirmed == Publish("a second check found the same: 12 of 12 servers were gone at once")


@pytest.mark.parametrize(
    ("at", "lost"),
    [(NOW - 120, frozenset(("tiny-hf", peer_id(f"s{n}")) for n in range(12))), (NOW - 30, frozenset({("tiny-hf", "another")}))],
    ids=["too long ago", "another loss"],
)
def test_an_old_doubt_or_one_about_others_confirms_nothing(at: float, lost: frozenset[tuple[str, str]]) -> None:
    assert isinstance(judge(published(*lot(12)), report(NOW, tiny()), Held(at, Suspicion.LOSS, lost)), Hold)


def look_again(second: CrawlReport) -> tuple[CrawlReport, Verdict]:
    before, first = published(*lot(12)), report(NOW, tiny())
    return settle(before, first, held(judge(before, first)), second)


def test_another_entry_peer_that_sees_the_servers_is_believed_instead() -> None:
    second = report(NOW + 2, tiny(*lot(12)))
    chosen, verdict = look_again(second)
    assert chosen is second and isinstance(verdict, Publish) and "another bootstrap peer" in verdict.confirmed


def test_another_entry_peer_that_shows_the_same_confirms_a_loss_at_once() -> None:
    chosen, verdict = look_again(report(NOW + 2, tiny()))
    assert isinstance(verdict, Publish) and chosen.started_at == NOW + 1


def test_another_entry_peer_that_fails_confirms_nothing() -> None:
    failed = CrawlReport("main", NOW, NOW + 1, failure="no bootstrap peer answers")
    chosen, verdict = look_again(failed)
    assert chosen.snapshot is not None and isinstance(verdict, Hold)


def test_the_verdict_goes_into_the_report() -> None:
    first = report(NOW, tiny())
    doubt = held(judge(published(*lot(12)), first))
    stored = applied(first, doubt)
    assert (stored.held, stored.suspicion, len(stored.lost)) == (doubt.reason, "loss", 12)
    assert applied(first, Publish("so")).confirmed == "so"


@given(st.integers(0, 40), st.integers(0, 40))
def test_whatever_is_published_at_once_lost_less_than_half(before: int, left: int) -> None:
    then, now = published(*lot(before)), report(NOW, tiny(*lot(left)))
    assert now.snapshot is not None
    lost = lost_between(then.snapshot, now.snapshot)
    assert len(lost) == max(0, before - left)
    assert isinstance(judge(then, now), Publish) == (len(lost) < 2 or 2 * len(lost) < before)
