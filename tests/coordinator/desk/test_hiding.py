"""Names and peers are hidden and shown again from the admin, and both are written down. Alerts wait for maintenance."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.test import Client

from coordinator.desk.models import Kind
from monitor.alerts.conditions import Wish, finding
from monitor.alerts.judging import take_look
from monitor.alerts.rules import Topic
from monitor.hiding.models import Hidden
from monitor.queries import watch_everyone
from tests.coordinator.desk.people import decided, logged_in
from tests.coordinator.seeding import SWARM, seen
from tests.coordinator.test_hints import HOLED
from tests.swarms import model, peer_id, server

pytestmark = pytest.mark.django_db


def test_what_is_hidden_from_the_admin_is_shown_nowhere_and_can_be_shown_again(client: Client) -> None:
    seen(model(4, server("rude", 0, 4), server("b", 0, 4)))
    staff = logged_in()
    for form in ({"kind": "name", "value": "Rude"}, {"kind": "peer", "value": peer_id("b")}):
        assert staff.post("/admin/hiding/hidden/add/", {**form, "reason": "asked to"}).status_code == 302
    page = client.get("/m/tiny-hf").content.decode()
    assert "rude" not in page and peer_id("b") not in page and peer_id("rude") in page
    for row in Hidden.objects.all():
        assert staff.post(f"/admin/hiding/hidden/{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert peer_id("b") in client.get("/m/tiny-hf").content.decode()
    flags = list(LogEntry.objects.order_by("pk").values_list("action_flag", flat=True))
    assert flags == [ADDITION, ADDITION, DELETION, DELETION]


def test_a_peer_to_hide_must_be_one() -> None:
    answer = logged_in().post("/admin/hiding/hidden/add/", {"kind": "peer", "value": "me", "reason": ""})
    assert "This is no peer id" in answer.content.decode() and not Hidden.objects.exists()


def test_alerts_wait_for_the_end_of_maintenance() -> None:
    seen(HOLED, ago_s=60)
    seen(HOLED, ago_s=30)
    wish = Wish(Topic.MODEL, "tiny-hf")
    assert finding(wish, take_look(watch_everyone(SWARM))).bad is True
    decided(Kind.MAINTENANCE, "tiny-hf")
    assert finding(wish, take_look(watch_everyone(SWARM))).bad is None
    assert finding(Wish(Topic.MODEL, "other-hf"), take_look(watch_everyone(SWARM))).bad is None
