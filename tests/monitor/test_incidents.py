"""Incidents in the database, on pages and in the API: what the rules decide, once, and in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from django.db import IntegrityError
from django.test import Client

from monitor.history import record
from monitor.history.minutes import moment
from monitor.history.models import Incident
from monitor.history.words import title
from monitor.models import KEPT_FOR, Crawl, WatchedModel
from monitor.store import store
from swarm.snapshot import Model, PeerState
from tests.monitor.seeding import NOW, SWARM, announced, failure, online, seed, unreachable
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db


def whole(at: float) -> Model:
    return model(4, online("a", 0, 4, at=at), online("b", 0, 4, at=at), online("c", 0, 4, at=at))


def torn(at: float) -> Model:
    """Block 3 is lost: one server crashed, two moved."""
    return model(4, online("a", 0, 3, at=at), online("b", 0, 3, at=at), unreachable("c", 0, 4, at=at))


def one_hole() -> Incident:
    for at, make in ((NOW, whole), (NOW + 30, torn), (NOW + 60, torn), (NOW + 90, whole)):
        seed(make(at), at=at)
    return Incident.objects.get(kind="hole")


def test_a_hole_is_stored_with_its_bounds_and_who_did_what() -> None:
    row = one_hole()
    assert (row.started_after, row.started_before) == (moment(NOW), moment(NOW + 30))
    assert (row.bad_at, row.ended_before) == (moment(NOW + 60), moment(NOW + 90))
    assert row.blocks == [3]
    assert {entry["how"] for entry in row.left} == {"moved to other blocks", "stopped answering"}
    assert {entry["peer_id"] for entry in row.restored} == {peer_id("a"), peer_id("b"), peer_id("c")}


def test_a_suspicion_is_shown_to_nobody_and_leaves_nothing() -> None:
    seed(whole(NOW), at=NOW)
    seed(torn(NOW + 30), at=NOW + 30)
    assert Client().get("/api/v1/incidents").json()["items"] == []
    seed(whole(NOW + 60), at=NOW + 60)
    assert not Incident.objects.exists()


def test_a_model_that_is_announced_no_more_has_no_open_incident() -> None:
    for at, make in ((NOW, whole), (NOW + 30, torn), (NOW + 60, torn)):
        seed(make(at), at=at)
    other = replace(whole(NOW + 90), prefix="other")
    seed(other, at=NOW + 90)
    row = Incident.objects.get()
    assert row.ended_before == moment(NOW + 90) and row.restored == []
    assert "no longer announces" in Client().get(f"/incidents/{row.pk}").content.decode()


def test_a_title_lists_few_spans_and_counts_many() -> None:
    whole_row = Incident(kind="hole", blocks=list(range(0, 40, 2)), ended_before=moment(NOW))
    assert title(whole_row) == ": 20 blocks from 0 to 38 had no server"
    assert title(Incident(kind="thin", blocks=[1, 2, 5])) == ": blocks 1–2, 5 have only one server"


def test_a_failed_crawl_touches_no_incident_of_a_model() -> None:
    seed(whole(NOW), at=NOW)
    seed(torn(NOW + 30), at=NOW + 30)
    store(failure(NOW + 60))
    assert Incident.objects.get(kind="hole").confirmed_at is None


def test_crawls_that_fail_make_an_incident_of_the_monitor_which_the_next_sight_ends() -> None:
    seed(whole(NOW), at=NOW)
    for after in (30, 60, 90, 120):
        store(failure(NOW + after, "p2pd at /ip4/10.0.0.1/tcp/1 does not answer"))
    row = Incident.objects.get()
    assert (row.kind, row.model, row.ended_before) == ("blind", None, None)
    assert row.reason and "10.0.0.1" not in row.reason
    seed(whole(NOW + 150), at=NOW + 150)
    row.refresh_from_db()
    assert row.ended_before == moment(NOW + 150)


def test_a_monitor_that_was_off_for_longer_than_crawls_are_kept_knows_when_it_saw_the_swarm_last() -> None:
    seed(whole(NOW), at=NOW)
    record.watch_the_clock(SWARM, NOW + 120)
    later = NOW + KEPT_FOR.total_seconds() + 86_400
    seed(whole(later), at=later)
    row = Incident.objects.get()
    assert (row.kind, row.started_after, row.ended_before) == ("blind", moment(NOW), moment(later))
    seed(whole(later + 3_700), at=later + 3_700)
    assert Crawl.objects.order_by("pk")[0].observed_at == moment(later), "the one before is forgotten"


def test_where_no_crawl_runs_the_clock_tells() -> None:
    seed(whole(NOW), at=NOW)
    record.watch_the_clock(SWARM, NOW + 80)
    assert not Incident.objects.exists()
    record.watch_the_clock(SWARM, NOW + 100)
    record.watch_the_clock(SWARM, NOW + 160)
    row = Incident.objects.get()
    assert row.bad_at == moment(NOW + 160)
    seed(whole(NOW + 200), at=NOW + 200)
    assert Incident.objects.get().ended_before == moment(NOW + 200)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "storm"},
        {"kind": "blind"},
        {"started_after": moment(NOW + 60)},
        {"bad_at": moment(NOW - 60)},
        {"ended_before": moment(NOW - 60)},
        {"ended_before": moment(NOW + 60), "confirmed_at": None},
        {"blocks": []},
    ],
)
def test_the_database_refuses_what_cannot_be(wrong: dict[str, object]) -> None:
    seed(whole(NOW), at=NOW)
    right = {
        "swarm": SWARM,
        "model": WatchedModel.objects.get(),
        "kind": "hole",
        "started_before": moment(NOW),
        "bad_at": moment(NOW),
        "confirmed_at": moment(NOW),
        "blocks": [3],
    }
    with pytest.raises(IntegrityError):
        Incident.objects.create(**{**right, **wrong})


def test_the_database_holds_one_open_incident_of_a_kind() -> None:
    seed(whole(NOW), at=NOW)
    same = {"swarm": SWARM, "kind": "hole", "started_before": moment(NOW), "bad_at": moment(NOW)}
    Incident.objects.create(model=WatchedModel.objects.get(), **same)
    with pytest.raises(IntegrityError):
        Incident.objects.create(model=WatchedModel.objects.get(), **same)


def test_the_pages_tell_it_in_words_without_scripts(client: Client) -> None:
    row = one_hole()
    listed = client.get("/incidents").content.decode()
    assert "No incident is open" in listed and "tiny-hf: block 3 had no server" in listed
    told = client.get(f"/incidents/{row.pk}").content.decode()
    for words in ("had no server", "between", "stopped answering", "came online on block 3", "It lasted"):
        assert words in told
    assert "<script>" not in told and "style=" not in told
    assert client.get("/incidents/999999999").status_code == 404
    assert client.get("/incidents/99999999999999999999999").status_code == 404


def test_an_open_incident_comes_first(client: Client) -> None:
    seed(whole(NOW), at=NOW)
    for after in (30, 60):
        seed(torn(NOW + after), at=NOW + after)
    page = client.get("/incidents").content.decode()
    assert "1 incident is open" in page and "block 3 has no server" in page


def test_without_incidents_the_page_says_how_much_was_watched(client: Client) -> None:
    assert "Nothing has been watched yet" in client.get("/incidents").content.decode()


def test_the_api_walks_through_all_incidents_once() -> None:
    seed(whole(NOW), at=NOW)
    row = WatchedModel.objects.get()
    for number in range(7):
        at = moment(NOW + number * 100)
        ended = moment(NOW + number * 100 + 30)
        Incident.objects.create(
            swarm=SWARM, model=row, kind="hole", started_before=at, bad_at=at, confirmed_at=at, ended_before=ended, blocks=[1]
        )
    url: str | None = "/api/v1/incidents?limit=3"
    seen: list[int] = []
    while url:
        answer = Client().get(url)
        page = answer.json()
        seen += [item["id"] for item in page["items"]]
        url = page["next"]
        assert (url is None) == ("Link" not in answer)
    assert len(seen) == len(set(seen)) == 7 and seen == sorted(seen, reverse=True)


def test_one_incident_as_json_says_what_counts_as_downtime(client: Client) -> None:
    row = one_hole()
    document = client.get(f"/api/v1/incidents/{row.pk}").json()
    assert document["counts_as_downtime"] is True and document["blocks"] == [[3, 4]] and document["open"] is False
    assert document["started"] == {"after": "2026-09-21T14:13:20Z", "before": "2026-09-21T14:13:50Z"}
    assert {entry["normally"] for entry in document["left"]} == {False}
    assert client.get("/api/v1/incidents/12345").status_code == 404
    assert client.get("/api/v1/incidents?limit=0").status_code == 422
    assert client.get("/api/v1/incidents?kind=storm").status_code == 422


def test_a_server_that_says_goodbye_left_normally() -> None:
    seed(model(2, online("a", 0, 2)), at=NOW)
    for after in (30, 60):
        seed(model(2, announced("a", 0, 2, PeerState.LEAVING, NOW + after)), at=NOW + after)
    row = Incident.objects.get(kind="hole")
    document = Client().get(f"/api/v1/incidents/{row.pk}").json()
    assert document["left"] == [{"peer_id": peer_id("a"), "how": "left normally", "normally": True}]


def test_history_as_json(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from monitor.history import rollups

    one_hole()
    rollups.roll_up(moment(NOW + 90))
    monkeypatch.setattr("monitor.api.history.time.time", lambda: NOW + 90)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    document = json.loads(client.get("/api/v1/models/tiny-hf/history?days=30").content, parse_constant=refuse)
    assert len(document["days"]) == 30 and document["days"][0]["share_up"] is None
    assert document["total"] == {
        "watched_minutes": 2, "broken_minutes": 2, "thin_minutes": 0, "unknown_minutes": 0, "share_up": 0.0
    }  # fmt: skip
    assert [block["minutes_without_server"] for block in document["blocks"]] == [0, 0, 0, 2]
    assert client.get("/api/v1/models/nobody/history").status_code == 404
    peer = client.get(f"/api/v1/peers/{peer_id('c')}/uptime").json()
    assert peer["items"] == [{"prefix": "tiny-hf", "up_minutes": 0, "known_minutes": 2, "share_up": 0.0, "hours": []}]
    assert client.get(f"/api/v1/peers/{peer_id('nobody')}/uptime").status_code == 404
    assert client.get("/api/v1/models/tiny-hf/history?days=0").status_code == 422
