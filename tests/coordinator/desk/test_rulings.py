"""What the staff decides is obeyed by pages, JSON, history and hints, and ends by itself."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from coordinator import hints
from coordinator.desk.models import IncidentNote, Kind, Ruling
from coordinator.models import Lease, Phase
from monitor.history.models import Incident
from monitor.models import ServerRow, WatchedModel
from swarm.snapshot import PeerState
from swarm.wire.hints import LeaseStep, ReasonCode
from swarm.wire.spans import Span
from tests.coordinator.desk.people import decided, logged_in, person
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.test_hints import HOLED, ask, holed
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db

THIN = model(4, server("a", 0, 4), server("b", 0, 4))


def document(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/v1/models/tiny-hf").json()
    return found


def server_of(client: Client, name: str) -> dict[str, Any] | None:
    return next((one for one in document(client)["servers"] if one["peer_id"] == peer_id(name)), None)


def test_a_quarantined_server_counts_for_nothing_and_is_shown_as_such(client: Client) -> None:
    decided(Kind.QUARANTINE, peer_id("a"), "sends wrong tensors")
    seen(THIN)
    assert document(client)["blocks"] == [1, 1, 1, 1] and document(client)["verdict"] == "thin"
    shown = server_of(client, "a")
    assert shown is not None and shown["state"] == "quarantined" and "sends wrong tensors; until" in shown["quarantined"]
    page = client.get("/m/tiny-hf").content.decode()
    assert "quarantined" in page and "set aside by this site&#x27;s staff: sends wrong tensors" in page
    assert 'swarm_servers{model="tiny-hf",state="quarantined"} 1.0' in client.get("/metrics").content.decode()
    # History and incidents are told the same, while what was seen stays stored.
    assert WatchedModel.objects.get().verdict == "thin" and Incident.objects.get().kind == "thin"
    assert ServerRow.objects.get(peer_id=peer_id("a")).state == PeerState.ONLINE


def test_a_quarantine_ends_by_itself(client: Client) -> None:
    decided(Kind.QUARANTINE, peer_id("a"), since_s=-7_200, until_s=-1)
    seen(THIN)
    assert document(client)["blocks"] == [2, 2, 2, 2]


def test_a_quarantine_counts_before_the_next_crawl_and_nobody_says_since_when_it_is_thin(client: Client) -> None:
    seen(THIN)
    assert document(client)["since"] is not None
    decided(Kind.QUARANTINE, peer_id("a"))
    assert document(client)["verdict"] == "thin" and document(client)["since"] is None


def test_a_quarantine_of_another_swarm_changes_nothing_here(client: Client) -> None:
    decided(Kind.QUARANTINE, peer_id("a"), swarm="lab")
    seen(THIN)
    assert document(client)["blocks"] == [2, 2, 2, 2]


def test_a_server_that_opens_a_hole_by_being_set_aside_is_named_as_the_cause() -> None:
    seen(THIN, ago_s=60)
    decided(Kind.QUARANTINE, peer_id("a"))
    decided(Kind.QUARANTINE, peer_id("b"))
    seen(THIN, ago_s=30)
    hole = Incident.objects.get(kind="hole")
    assert {left["how"] for left in hole.left} == {"was set aside by the site's staff"}


def test_a_quarantined_server_gets_no_hint_and_an_open_one_is_taken_back() -> None:
    holed()
    lease = ask("d", Span(0, 12)).lease
    assert lease is not None
    client = logged_in()
    added = client.post("/admin/desk/quarantine/add/", quarantine_form(peer_id("d")))
    assert added.status_code == 302, added.content
    closed = Lease.objects.get(pk=lease.id)
    assert closed.phase == Phase.STALE and closed.close_reason == "this server has been quarantined"
    answer = ask("d", Span(0, 12))
    assert answer.lease is None and answer.reason_code is ReasonCode.QUARANTINED
    assert "in quarantine here" in answer.reason and answer.retry_after_s == hints.RETRY_BARRED_S


def test_a_lease_that_slipped_through_is_not_accepted() -> None:
    holed()
    given = ask("d", Span(0, 12)).lease
    assert given is not None
    decided(Kind.QUARANTINE, peer_id("d"))
    step = LeaseStep(peer=peer_id("d"), plan_version=given.plan_version)
    reply = hints.accept(SWARM, Lease.objects.get(pk=given.id), step, now())
    assert reply.outcome == "stale" and "quarantine" in reply.reason


def test_what_was_promised_to_a_server_is_free_again_when_its_quarantine_begins_by_itself() -> None:
    holed()
    given = ask("d", Span(0, 12)).lease
    assert given is not None
    decided(Kind.QUARANTINE, peer_id("d"))
    ask("a", Span(0, 12))
    assert Lease.objects.get(pk=given.id).close_reason == hints.QUARANTINED_SINCE


def test_what_a_quarantined_server_claims_fills_no_hole() -> None:
    holed()
    ask("z", Span(12, 18))
    assert ask("d", Span(0, 12)).lease is None
    decided(Kind.QUARANTINE, peer_id("z"))
    assert ask("d", Span(0, 12)).lease is not None


def test_maintenance_is_announced_and_marks_the_incidents_in_it(client: Client) -> None:
    decided(Kind.MAINTENANCE, "tiny-hf", "the cellar is rewired")
    seen(HOLED, ago_s=60)
    seen(HOLED, ago_s=30)
    assert "Maintenance of tiny-hf until" in client.get("/").content.decode()
    hole = Incident.objects.get(kind="hole")
    assert "in announced maintenance" in client.get("/incidents").content.decode()
    one = client.get(f"/incidents/{hole.pk}").content.decode()
    assert "Maintenance of tiny-hf, announced until" in one and "the cellar is rewired" in one


def test_maintenance_of_another_model_marks_nothing(client: Client) -> None:
    decided(Kind.MAINTENANCE, "other-hf")
    seen(HOLED, ago_s=60)
    seen(HOLED, ago_s=30)
    assert "announced maintenance" not in client.get("/incidents").content.decode()


def test_alerts_ask_whether_there_is_maintenance_now() -> None:
    from monitor.rulings import staff

    decided(Kind.MAINTENANCE, "tiny-hf", until_s=60)
    decided(Kind.MAINTENANCE, "", "everything moves", until_s=600)
    ruled = staff().rulings(SWARM, time.time())
    window = ruled.maintenance_of("tiny-hf")
    assert window is not None and window.words == "everything moves"
    assert staff().rulings(SWARM, time.time() + 700).maintenance_of("tiny-hf") is None


@pytest.mark.parametrize("path", ["/", "/m/tiny-hf", "/incidents", "/connect", "/hints", "/what-if", "/nowhere"])
def test_a_banner_stands_on_every_public_page_and_nothing_in_it_is_markup(client: Client, path: str) -> None:
    seen(THIN)
    decided(Kind.BANNER, words="<script>alert(1)</script> Tonight we move house.")
    decided(Kind.BANNER, words="This one is over.", until_s=-1)
    page = client.get(path).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; Tonight we move house." in page
    assert "<script>alert" not in page and "This one is over" not in page


def test_a_note_of_the_staff_stands_on_the_incident_s_page(client: Client) -> None:
    seen(HOLED, ago_s=60)
    seen(HOLED, ago_s=30)
    hole = Incident.objects.get(kind="hole")
    IncidentNote.objects.create(incident=hole, words="A <b>switch</b> failed.", made_by=person(), made_at=now())
    page = client.get(f"/incidents/{hole.pk}").content.decode()
    assert "Notes of the site's staff" in page and "A &lt;b&gt;switch&lt;/b&gt; failed." in page


def quarantine_form(subject: str, **more: str) -> dict[str, str]:
    day = "2026-01-01" if "past" in more else time.strftime("%Y-%m-%d", time.gmtime())
    later = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86_400))
    return {
        "swarm": "",
        "subject": subject,
        "words": "sends wrong tensors",
        "starts_at_0": day,
        "starts_at_1": "00:00:00",
        "ends_at_0": later,
        "ends_at_1": "00:00:00",
        **more,
    }


def now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def test_the_table_refuses_a_ruling_that_ends_before_it_begins_or_is_about_nobody() -> None:
    from django.db import IntegrityError, transaction

    for wrong in ({"until_s": -120}, {"subject": ""}, {"words": ""}):
        with pytest.raises(IntegrityError), transaction.atomic():
            decided(Kind.QUARANTINE, **{"subject": peer_id("a"), **wrong})  # type: ignore[arg-type]
    assert not Ruling.objects.exists()
