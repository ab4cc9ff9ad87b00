"""Several models: who arrives where, who is asked to change, and what holds in both models until it is done."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client

from coordinator import fleet, followers, hints, lease_terms, leases, plans
from coordinator.demand import demand_of, weighed
from coordinator.desk.oddities import doubles
from coordinator.models import Follower, Importance, Lease, Phase, Tally
from coordinator.seeing import Seen, look
from monitor.history.models import Incident
from monitor.queries import watch_everyone
from swarm.placement import Placement, find_holes
from swarm.snapshot import Model, PeerState
from swarm.wire.hints import (
    HintAnswer,
    HintRequest,
    LeaseReply,
    LeaseStep,
    OtherModel,
    ReasonCode,
    SpanDocument,
    Urgency,
)
from swarm.wire.spans import Span
from tests.coordinator.seeding import SWARM, question, seen
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

WHOLE = Span(0, 8)
RICH = replace(model(8, *(server(name, 0, 8) for name in ("r0", "r1", "r2"))), prefix="rich")
POOR = replace(model(8, server("p", 0, 4)), prefix="poor")
"""Its only server cannot leave its blocks: nobody of its own can fill the rest."""
BOTH = {"poor": 8}


def now() -> datetime:
    return datetime.now(UTC)


def ask(name: str, serving: Span | None = WHOLE, prefix: str = "rich", also: dict[str, int] | None = None) -> HintAnswer:
    return hints.answer(SWARM, question(name, 8, serving, prefix, BOTH if also is None else also), now())


def accept(lease: Lease, when: datetime | None = None, current: Span | None = None) -> LeaseReply:
    serving = SpanDocument(start=current.start, end=current.end) if current else None
    return hints.accept(SWARM, lease, LeaseStep(peer=lease.peer_id, current=serving), when or now())


def transferred(name: str = "r0") -> Lease:
    """An offer to `name` to change from the rich model to the poor one."""
    seen(RICH, POOR)
    assert ask(name).lease is not None
    return Lease.objects.get()


def without(swarm: Model, *names: str) -> Model:
    gone = {peer_id(name) for name in names}
    return replace(swarm, servers=tuple(s for s in swarm.servers if s.peer_id not in gone))


def with_server(swarm: Model, name: str, start: int, end: int) -> Model:
    return replace(swarm, servers=(*without(swarm, name).servers, server(name, start, end)))


# ------------------------------------------------------------------------------------------------------------ arrivals


def test_an_arrival_goes_to_the_model_that_does_not_run_and_is_told_why() -> None:
    seen(RICH, POOR)
    answer = ask("new", serving=None)
    assert answer.lease is not None
    assert (answer.model, answer.lease.model, answer.lease.to_span()) == ("poor", "poor", WHOLE)
    assert answer.reason == "poor: blocks 4–7 have no server; it gains more by this server than rich"
    assert answer.lease.from_model is None and answer.lease.if_unchanged is None
    offered = Lease.objects.get().inputs["models"]
    assert [item["model"] for item in offered] == ["poor", "rich"] and offered[0]["worth"] > offered[1]["worth"]


def test_each_model_counts_how_many_blocks_of_it_fit() -> None:
    seen(RICH, POOR)
    answer = ask("new", serving=None, also={"poor": 2})
    assert answer.lease is not None and (answer.lease.model, answer.lease.to_span()) == ("poor", Span(4, 6))


def test_without_further_models_an_arrival_is_answered_as_ever() -> None:
    seen(RICH, POOR)
    answer = ask("new", serving=None, also={})
    assert answer.lease is not None and answer.lease.model == "rich" and "poor" not in answer.reason


def test_a_model_that_the_monitor_has_not_seen_is_for_the_server_to_judge() -> None:
    seen(RICH)
    answer = ask("new", serving=None)
    assert (answer.reason_code, answer.lease) == (ReasonCode.UNKNOWN_MODEL, None)
    assert "poor" in answer.reason
    assert ask("r0").reason_code is not ReasonCode.UNKNOWN_MODEL, "one that serves is not kept from its hints by that"


def test_importance_and_use_weigh_and_neither_without_bound(client: Client) -> None:
    other = replace(RICH, prefix="other", servers=tuple(server(name, 0, 8) for name in ("o0", "o1", "o2", "o3")))
    seen(RICH, other)
    assert ask("new", serving=None, also={"other": 8}).model == "rich", "it has fewer servers"
    Importance.objects.create(swarm=SWARM, prefix="other", weight=50.0, words="a course needs it")
    Importance.objects.create(swarm="", prefix="other", weight=0.0, words="elsewhere not")
    assert ask("newer", serving=None, also={"other": 8}).model == "other"
    with pytest.raises(IntegrityError), transaction.atomic():
        Importance.objects.create(swarm=SWARM, prefix="rich", weight=1e9, words="mine")
    assert (weighed(0, 0), weighed(0, 4), weighed(4, 4)) == (1.0, 1.0, 2.0)


def seen_of(prefix: str) -> Seen:
    found = look(SWARM, [prefix], now())[prefix]
    assert isinstance(found, Seen)
    return found


def test_open_sessions_count_once_for_each_server_however_many_are_claimed() -> None:
    seen(RICH, POOR)
    assert demand_of(seen_of("rich")) == 1.0
    hints.answer(SWARM, question("r0", 8, WHOLE, "rich", sessions=1_000_000), now())
    assert demand_of(seen_of("rich")) == pytest.approx(1.0 + 1 / 3)
    hints.answer(SWARM, question("nobody that the monitor sees", 8, WHOLE, "rich", sessions=9), now())
    assert demand_of(seen_of("rich")) == pytest.approx(1.0 + 1 / 3)


# ----------------------------------------------------------------------------------------------------------- transfers


def test_a_spare_server_is_asked_to_change_with_the_reason_and_who_stays() -> None:
    lease = transferred()
    document = leases.to_document(lease, now())
    assert (document.model, document.from_model, document.if_unchanged) == ("poor", "rich", SpanDocument(start=0, end=8))
    assert document.urgency is Urgency.HOLE and document.reason_code is ReasonCode.HOLE
    assert document.reason == (
        "poor: blocks 4–7 have no server, and its own servers cannot fill that; "
        "each block that this server leaves in rich keeps another server online"
    )
    left = lease.inputs["leaves"]
    assert (left["model"], left["left"]) == ("rich", 2)
    assert {item["peer_id"] for item in left["staying"]} == {peer_id("r1"), peer_id("r2")}
    assert "without this server blocks 0–3 have no server" in lease.inputs["candidates"][0]["objection"]


def with_disk(name: str, serving: Span | None, prefix: str, other: str, *kept: Span) -> HintRequest:
    there = tuple(SpanDocument.of(span) for span in kept)
    also = (OtherModel(model=other, num_blocks_max=8, on_disk=there),)
    return question(name, 8, serving, prefix).model_copy(update={"also": also})


def test_who_has_the_other_model_on_its_disk_is_asked_before_who_must_download_it() -> None:
    for name in ("r0", "r1", "r2"):
        kept = (WHOLE,) if name == "r2" else ()
        followers.note_heartbeat(SWARM, with_disk(name, WHOLE, "rich", "poor", *kept), now())
    seen(RICH, POOR)
    told = [hints.answer(SWARM, with_disk(name, WHOLE, "rich", "poor"), now()) for name in ("r0", "r1")]
    assert [(answer.lease, answer.reason_code) for answer in told] == [(None, ReasonCode.OTHER_SERVER_MOVES)] * 2
    answer = hints.answer(SWARM, with_disk("r2", WHOLE, "rich", "poor", WHOLE), now())
    assert answer.lease is not None and answer.lease.model == "poor"


def test_an_arrival_is_given_the_model_and_the_blocks_that_it_has() -> None:
    other = replace(RICH, prefix="other", servers=tuple(server(name, 0, 8) for name in ("o0", "o1", "o2")))
    seen(RICH, other)
    assert ask("new", serving=None, also={"other": 8}).model == "rich", "they gain alike, and it stands first in the list"
    asked = with_disk("newer", None, "rich", "other", Span(2, 6))
    small = asked.also[0].model_copy(update={"num_blocks_max": 4})
    answer = hints.answer(SWARM, asked.model_copy(update={"also": (small,)}), now())
    assert answer.lease is not None and (answer.model, answer.lease.to_span()) == ("other", Span(2, 6))


def test_only_what_a_server_offers_is_asked_of_it() -> None:
    seen(RICH, POOR)
    assert ask("r0", also={}).lease is None
    assert ask("r0", also={"a-third": 8}).lease is None
    assert not Lease.objects.exists()


def test_one_server_is_asked_and_the_others_stay() -> None:
    transferred()
    answers = [ask(name) for name in ("r1", "r2")]
    assert [answer.lease for answer in answers] == [None, None]
    assert Lease.objects.count() == 1


def test_who_is_not_the_best_to_change_is_told_that_another_one_is() -> None:
    seen(RICH, POOR)
    for name in ("r0", "r1", "r2"):
        followers.note_heartbeat(SWARM, question(name, 8, WHOLE, "rich", BOTH), now())
    looks = [hints.look(SWARM, question(name, 8, WHOLE, "rich", BOTH), now(), "only looking") for name in ("r0", "r1", "r2")]
    assert sorted(answer.advice for answer in looks) == ["move", "stay", "stay"]
    (goes,) = [answer for answer in looks if answer.advice == "move"]
    assert goes.model == "poor" and goes.lease is None
    told = {(answer.reason_code, answer.reason) for answer in looks if answer is not goes}
    words = "poor: blocks 4–7 have no server; another server is the better one to change to it"
    assert told == {(ReasonCode.OTHER_SERVER_MOVES, words)}


def test_a_server_that_was_asked_to_go_counts_as_gone_where_it_leaves() -> None:
    """Two servers on each block, one of them promised away: the other one may not leave any more, for any model."""
    two = without(RICH, "r2")
    third = replace(POOR, prefix="third", servers=(server("t", 0, 4),))
    seen(two, POOR, third)
    for name in ("r0", "r1"):
        followers.note_heartbeat(SWARM, question(name, 8, WHOLE, "rich", {"poor": 8, "third": 8}), now())
    answers = {name: ask(name, also={"poor": 8, "third": 8}) for name in ("r0", "r1", "r0", "r1")}
    (goes,) = [name for name, answer in answers.items() if answer.lease]
    (stays,) = answers.keys() - {goes}
    assert {s.peer_id for s in seen_of("rich").planned(but="").servers} == {peer_id(stays)}
    assert seen_of("rich").known.reloading == 1


def test_where_a_leaving_server_says_that_it_is_counts_no_more() -> None:
    lease = transferred()
    accept(lease)
    Follower.objects.filter(peer_id=lease.peer_id).update(start=0, end=4, claimed_at=now(), claim_counts=True)
    seen(without(RICH, "r0"), POOR, ago_s=5)
    assert followers.claims(SWARM, "rich", seen_of("rich").at, now(), {}), "it counts where no lease says otherwise"
    assert seen_of("rich").promises(but="") == ()


def test_the_promise_counts_in_the_plan_of_the_model_it_is_for_and_both_plans_move_on() -> None:
    seen(RICH, POOR)
    versions = {swarm.prefix: plans.current_version(SWARM, swarm) for swarm in (RICH, POOR)}
    assert ask("r0").lease is not None
    promised = seen_of("poor").promises(but="")
    assert [(promise.peer_id, promise.span) for promise in promised] == [(peer_id("r0"), WHOLE)]
    assert not find_holes(POOR, promised)
    assert all(plans.current_version(SWARM, swarm) > versions[swarm.prefix] for swarm in (RICH, POOR))


def test_a_hole_of_its_own_model_comes_first() -> None:
    holed = replace(RICH, servers=(server("r0", 0, 4), server("r1", 0, 4), server("r2", 0, 4)))
    seen(holed, POOR)
    answer = ask("r0", serving=Span(0, 4))
    assert answer.lease is not None and answer.lease.model == answer.lease.from_model == "rich"


def test_a_server_that_is_not_where_the_crawl_saw_it_is_not_sent_on() -> None:
    seen(RICH, POOR)
    assert ask("r0", serving=Span(0, 4)).lease is None


def test_accepting_is_stale_when_the_source_lost_its_other_holders() -> None:
    lease = transferred()
    seen(without(RICH, "r1", "r2"), POOR)
    reply = accept(lease)
    assert (reply.outcome, reply.reason) == ("stale", "without this server blocks 0–7 have no server of rich")
    assert Lease.objects.get().phase == Phase.STALE


def test_accepting_is_stale_when_the_target_was_given_a_server() -> None:
    lease = transferred()
    seen(RICH, with_server(POOR, "arrived", 0, 8))
    assert accept(lease).reason == "blocks 0–7 of poor have been given a server meanwhile"


def test_accepting_is_stale_when_either_model_cannot_be_seen_or_the_server_went_elsewhere() -> None:
    assert accept(transferred(), current=Span(0, 4)).outcome == "stale"
    Lease.objects.all().delete()
    Follower.objects.update(not_before=None)
    lease = transferred()
    seen(POOR)
    assert "has not seen rich" in accept(lease).reason


def test_a_transfer_is_done_when_it_is_seen_online_in_the_other_model() -> None:
    lease = transferred()
    assert accept(lease, current=WHOLE).outcome == "ok"
    assert leases.renew(Lease.objects.get(), now(), 0.1)
    assert ask("r0").reason_code is ReasonCode.LEASE_OPEN
    half_way = without(RICH, "r0")
    at = datetime.fromtimestamp(seen(half_way, POOR), UTC)
    leases.settle(SWARM, half_way, at, now())
    leases.settle(SWARM, POOR, at, now())
    assert Lease.objects.get().phase == Phase.ACCEPTED
    healed = with_server(POOR, "r0", 0, 8)
    leases.settle(SWARM, healed, datetime.fromtimestamp(seen(half_way, healed), UTC), now())
    assert Lease.objects.get().phase == Phase.DONE
    assert Tally.objects.filter(outcome="followed").values_list("prefix", flat=True).get() == "poor"


def test_a_server_that_changed_is_of_its_new_model_only_and_not_asked_to_change_again_at_once() -> None:
    lease = transferred()
    accept(lease)
    seen(without(RICH, "r0"), with_server(POOR, "r0", 0, 8))
    ask("r0", WHOLE, "poor", {"rich": 8})
    row = Follower.objects.get(peer_id=peer_id("r0"))
    assert (row.prefix, row.span, row.also) == ("poor", WHOLE, {"rich": 8})
    assert peer_id("r0") not in followers.movable(SWARM, "rich", now())
    # Now the model that it left breaks, and the one that it went to could spare it.
    plenty = with_server(with_server(POOR, "r0", 0, 8), "x", 0, 8)
    broken = replace(without(RICH, "r0", "r2"), servers=(server("r1", 0, 4),))
    seen(broken, plenty)
    assert Lease.objects.get().phase == Phase.DONE
    assert ask("r0", WHOLE, "poor", {"rich": 8}).lease is None
    Lease.objects.update(closed_at=now() - fleet.PAUSE_AFTER_CHANGE)
    again = ask("r0", WHOLE, "poor", {"rich": 8})
    assert again.lease is not None and (again.lease.from_model, again.lease.model) == ("poor", "rich")


def test_a_decline_holds_for_all_models_that_a_server_offers() -> None:
    lease = transferred()
    assert leases.decline(lease, "operator: not now", timedelta(hours=1), now())
    answer = ask("r0")
    assert answer.lease is None
    Follower.objects.exclude(peer_id=peer_id("r0")).delete()
    third = replace(POOR, prefix="third")
    seen(RICH, POOR, third)
    assert ask("r0", also={"third": 8}).lease is None
    assert peer_id("r0") not in followers.movable(SWARM, "rich", now())


def test_who_is_asked_to_change_and_does_not_come_gives_way_to_the_next_server() -> None:
    """Whoever offers much and does nothing holds a hole up for one offer's life, not for one after the other."""
    transferred()
    for name in ("r1", "r2"):
        followers.note_heartbeat(SWARM, question(name, 8, WHOLE, "rich", BOTH), now())
    later = now() + lease_terms.OFFER_LIFE + timedelta(seconds=1)
    leases.settle(SWARM, POOR, now(), later)
    assert Lease.objects.get().outcome == "ignored"
    answers = {name: ask(name) for name in ("r0", "r1", "r2")}
    (goes,) = [name for name, answer in answers.items() if answer.lease]
    assert goes != "r0"


def test_a_server_that_changes_its_words_hides_a_hole_in_one_model_at_a_time() -> None:
    seen(POOR, replace(POOR, prefix="third"), ago_s=30)
    for prefix in ("poor", "third"):
        hints.answer(SWARM, question("liar", 8, WHOLE, prefix), now())
    holes = {prefix: find_holes(POOR, seen_of(prefix).promises(but="")) for prefix in ("poor", "third")}
    assert holes == {"poor": (Span(4, 8),), "third": (Span(4, 8),)}, (
        "its second claim came too soon, and took the first one's place"
    )
    assert Follower.objects.count() == 1


def test_a_server_that_the_monitor_does_not_see_is_spared_by_nobody() -> None:
    seen(RICH, POOR)
    assert ask("a stranger that says that it serves").lease is None
    unreachable = server("r0", 0, 8, PeerState.UNREACHABLE)
    seen(replace(RICH, servers=(unreachable, *without(RICH, "r0").servers)), POOR)
    assert ask("r0").lease is None


def test_what_a_server_offers_is_checked(client: Client) -> None:
    seen(RICH, POOR)
    body = question("new", 8, None, "rich", BOTH).model_dump()

    def post(also: object) -> int:
        return client.post("/api/v1/hint", data={**body, "also": also}, content_type="application/json").status_code

    good = {"model": "poor", "num_blocks_max": 8}
    assert post([good]) == 200 and post([]) == 200
    assert post([{**good, "of_tomorrow": True}]) == 200, "what nobody knows yet is passed over"
    nine = [{**good, "model": f"m{number}"} for number in range(9)]
    twice, asked_about = [good, good], [{**good, "model": "rich"}]
    unreadable = [
        [{"model": "poor"}],
        [{**good, "num_blocks_max": True}],
        [{**good, "num_blocks_max": 0}],
        [{**good, "model": "no prefix"}],
    ]
    for bad in (nine, twice, asked_about, "poor", *unreadable):
        assert post(bad) == 422, bad
    del body["also"]
    assert client.post("/api/v1/hint", data=body, content_type="application/json").status_code == 200, "as before"


def test_a_server_that_was_started_for_other_models_gives_its_lease_back() -> None:
    transferred()
    assert ask("r0", also={}).lease is None
    closed = Lease.objects.get()
    assert (closed.phase, closed.close_reason) == (Phase.STALE, "the server does not offer poor any more")


def test_a_lease_to_a_model_that_has_vanished_lapses_like_any_other() -> None:
    """Else its server would wait for ever: it has one open lease at a time."""
    transferred()
    seen(RICH)
    later = now() + lease_terms.OFFER_LIFE + timedelta(seconds=1)
    answer = hints.answer(SWARM, question("r0", 8, WHOLE, "rich", BOTH), now())
    assert answer.lease is not None, "it stands until then"
    hints.answer(SWARM, question("r0", 8, WHOLE, "rich", BOTH), later)
    assert (Lease.objects.get().phase, Lease.objects.get().close_reason) == (Phase.EXPIRED, "not accepted in time")


def test_the_database_refuses_a_second_open_lease_of_a_peer_in_any_model() -> None:
    lease = transferred()
    elsewhere = Placement(Span(0, 4), ReasonCode.HOLE, "…")
    assert leases.offer(SWARM, "third", lease.peer_id, elsewhere, [0], WHOLE, now(), leases.Terms(from_prefix="rich")) is None
    with pytest.raises(IntegrityError), transaction.atomic():
        Lease.objects.filter(pk=lease.pk).update(origin_prefix="poor")


def test_a_transfer_is_told_in_both_models_and_on_the_pages(client: Client) -> None:
    lease = transferred()
    items = {item["prefix"]: item for item in client.get("/api/v1/models").json()["items"]}
    for prefix in ("rich", "poor"):
        (told,) = items[prefix]["leases"]
        assert (told["model"], told["from_model"], told["blocks"]) == ("poor", "rich", "blocks 0–7 of poor")
        assert "instead of blocks 0–7 of rich" in client.get(f"/m/{prefix}").content.decode()
        assert [item["from_model"] for item in client.get(f"/api/v1/hints?model={prefix}").json()["items"]] == ["rich"]
        assert "rich → poor" in client.get(f"/hints?model={prefix}").content.decode()
    page = client.get(f"/hints/{lease.pk}").content.decode()
    assert "Blocks 0–7 of poor" in page and "keeps 2 other servers online" in page and peer_id("r1")[-6:] in page
    needed = {item["prefix"]: item for item in client.get("/api/v1/needed").json()["items"]}
    assert "1 server is asked to change to poor, and can be spared here" in needed["rich"]["summary"]
    assert "blocks 0–7 are promised to servers that load them" in needed["poor"]["summary"]


def test_a_server_that_goes_to_another_model_has_left_in_order_and_is_no_double(client: Client) -> None:
    lease = transferred()
    accept(lease)
    left = replace(RICH, servers=(server("r0", 0, 8, PeerState.LEAVING), *without(RICH, "r0").servers))
    coming = replace(POOR, servers=(*POOR.servers, server("r0", 0, 8, PeerState.JOINING)))
    seen(left, coming)
    items = {item["prefix"]: item for item in client.get("/api/v1/models").json()["items"]}
    (state,) = [one["state"] for one in items["rich"]["servers"] if one["peer_id"] == peer_id("r0")]
    assert state == "leaving" and items["rich"]["verdict"] == "complete" and not items["rich"]["holes"]
    assert not Incident.objects.filter(model__prefix="rich").exists()
    published = watch_everyone(SWARM).published
    assert published is not None
    assert [double for double in doubles(published, {}) if double.kind == "one id, several models"] == []
    both = replace(POOR, servers=(*POOR.servers, server("r1", 0, 8)))
    seen(RICH, both)
    published = watch_everyone(SWARM).published
    assert published is not None and [double.subject for double in doubles(published, {}) if "models" in double.kind]


def test_an_arrival_with_a_choice_is_explained_on_its_page(client: Client) -> None:
    seen(RICH, POOR)
    ask("new", serving=None)
    page = client.get(f"/hints/{Lease.objects.get().pk}").content.decode()
    assert 'id="models"' in page and page.index('/m/poor">poor</a></th>') < page.index('/m/rich">rich</a></th>')


# --------------------------------------------------------------------------------------------------- many at the same time


@pytest.mark.django_db(transaction=True)
def test_servers_that_ask_in_opposite_directions_never_wait_for_each_other_for_ever() -> None:
    """Each holds one model's lock and wants the other's, were they not taken in one order. Nothing is promised twice."""
    crowd = [f"r{index}" for index in range(6)]
    one = replace(RICH, servers=tuple(server(name, 0, 8) for name in crowd))
    seen(one, POOR)
    together = threading.Barrier(12)

    def ask_in_a_thread(index: int) -> HintAnswer:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '60s'")
            together.wait(60)
            if index < 6:
                return ask(crowd[index])
            return ask(f"x{index}", None, "poor", {"rich": 8})
        finally:
            connection.close()

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask_in_a_thread, range(12)))
    filling = [answer for answer in answers if answer.lease is not None and answer.reason_code is ReasonCode.HOLE]
    assert [answer.model for answer in filling] == ["poor"], "one server for the hole, whichever way it came"
    assert all(answer.lease is not None for answer in answers[6:]), "an arrival is always told where to go"
    assert Lease.objects.open().filter(prefix="poor", claimed__isnull=False).count() == 1
