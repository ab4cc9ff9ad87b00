"""The staff says how much a model is wanted; it counts at once, within bounds, and is written down."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from coordinator.demand import importance_of
from coordinator.models import Importance
from tests.coordinator.desk.people import logged_in
from tests.coordinator.seeding import SWARM

pytestmark = pytest.mark.django_db

ADD = "/admin/coordinator/importance/add/"
FORM = {"swarm": SWARM, "prefix": "tiny-hf", "weight": "3", "words": "a course needs it"}


def test_what_the_staff_sets_counts_until_it_is_taken_from_the_list() -> None:
    staff = logged_in()
    assert importance_of(SWARM, "tiny-hf") == 1.0
    assert staff.post(ADD, FORM).status_code == 302
    assert importance_of(SWARM, "tiny-hf") == 3.0 and importance_of("another", "tiny-hf") == importance_of(SWARM, "b") == 1.0
    row = Importance.objects.get()
    assert "a course needs it" in staff.get("/admin/coordinator/importance/").content.decode()
    assert staff.post(f"/admin/coordinator/importance/{row.pk}/change/", {**FORM, "weight": "0"}).status_code == 302
    assert importance_of(SWARM, "tiny-hf") == 0.0
    assert staff.post(f"/admin/coordinator/importance/{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert importance_of(SWARM, "tiny-hf") == 1.0
    assert LogEntry.objects.count() == 3


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("weight", "101", "from 0, for never, to 100"),
        ("weight", "nan", "Enter a number"),
        ("prefix", "no prefix", "no model&#x27;s prefix"),
    ],
)
def test_what_cannot_be_is_refused_in_words(field: str, value: str, words: str) -> None:
    answer = logged_in().post(ADD, {**FORM, field: value})
    assert words in answer.content.decode() and not Importance.objects.exists()


def test_nobody_else_sets_it(client: Client) -> None:
    assert client.post(ADD, FORM).status_code == 302
    assert logged_in("bob", staff=False).post(ADD, FORM).status_code == 302
    assert not Importance.objects.exists()
