"""Asking for an alert with a plain form, confirming it from its address, testing it, and getting rid of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail as django_mail
from django.test import Client

from monitor.alerts import limits, outbox
from monitor.alerts.models import Delivery, Subscription
from monitor.alerts.tasks import send
from tests.monitor.seeding import online, seed
from tests.swarms import model, peer_id

pytestmark = pytest.mark.django_db

FORM = {"topic": "model", "model": "tiny-hf", "way": "email", "address": "someone@mail.example"}


@pytest.fixture(autouse=True)
def _mail_within_one_hour(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SEPAL_MAIL_FROM = "sepal@swarm.example"
    monkeypatch.setattr(limits, "time", SimpleNamespace(time=lambda: 1_790_000_000.0))


def asked(client: Client, **more: str) -> int:
    return client.post("/alerts", {**FORM, **more}).status_code


def deliver() -> None:
    outbox.run(datetime.now(UTC), send)


def test_the_whole_life_of_an_alert(client: Client, settings: Any) -> None:
    seed(model(2, online("a", 0, 2)))
    form = client.get("/alerts").content.decode()
    assert "<option selected>tiny-hf" in form or "<option>tiny-hf" in form
    page = client.post("/alerts", FORM).content.decode()
    mine = Subscription.objects.get()
    assert "One more step" in page and mine.secret not in page, "only the address itself gets the link"
    deliver()
    (letter,) = django_mail.outbox
    link = re.search(rf"{settings.SEPAL_URL}(/alerts/\S+)", letter.body)
    assert link is not None and "Confirm" in letter.body
    opened = client.get(link[1])
    assert "not confirmed" in opened.content.decode()
    mine.refresh_from_db()
    assert mine.confirmed_at is None, "a program that looks at the link confirms nothing"
    assert "Confirmed" in client.post(link[1], {"action": "confirm"}).content.decode()
    client.post(link[1], {"action": "test"})
    deliver()
    assert django_mail.outbox[1].subject == "[Sepal] Test from Sepal"
    assert "✓ sent" in client.get(link[1]).content.decode()
    assert "Removed" in client.post(link[1], {"action": "remove"}).content.decode()
    assert not Subscription.objects.exists() and not Delivery.objects.exists()
    assert client.get(link[1]).status_code == 404


def test_the_button_of_mail_programs_ends_it_with_one_click(client: Client) -> None:
    asked(client)
    client.post(f"/alerts/{Subscription.objects.get().secret}", {"List-Unsubscribe": "One-Click"})
    assert not Subscription.objects.exists()


def test_a_webhook_is_shown_its_key_and_gets_its_link_itself(client: Client) -> None:
    page = client.post("/alerts", {**FORM, "way": "webhook", "address": "https://hooks.example/x"}).content.decode()
    mine = Subscription.objects.get()
    assert mine.signing_key in page and mine.secret not in page
    assert Delivery.objects.get().message["confirm_url"].endswith(f"/alerts/{mine.secret}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "weather"},
        {"model": "no such;model"},
        {"topic": "peer", "peer": "nobody"},
        {"topic": "redundancy", "target": "0"},
        {"topic": "redundancy", "target": "many"},
        {"address": "nobody"},
        {"address": "a@b.example\r\nBcc: c@d.example"},
        {"way": "webhook", "address": "http://hooks.example"},
        {"way": "webhook", "address": "https://169.254.169.254/latest"},
    ],
)
def test_what_cannot_be_is_refused_in_words_and_leaves_nothing(client: Client, wrong: dict[str, str]) -> None:
    answer = client.post("/alerts", {**FORM, **wrong})
    assert answer.status_code == 422 and 'role="alert"' in answer.content.decode()
    assert not Subscription.objects.exists()


def test_asking_again_tells_nothing_and_sends_at_most_one_message_in_ten_minutes(client: Client) -> None:
    first, second = client.post("/alerts", FORM), client.post("/alerts", FORM)
    assert first.content == second.content and Delivery.objects.count() == 1
    Delivery.objects.update(created_at=datetime.now(UTC) - timedelta(minutes=11))
    asked(client)
    assert Delivery.objects.count() == 2 and Subscription.objects.count() == 1


def test_an_address_that_confirms_nothing_is_not_asked_for_more(client: Client) -> None:
    statuses = [asked(client, topic="redundancy", target=str(target)) for target in range(1, 5)]
    assert statuses == [200, 200, 200, 409]


def test_who_asks_too_often_is_told_to_wait(client: Client) -> None:
    statuses = [asked(client, address=f"someone{n}@mail.example") for n in range(11)]
    assert statuses[-2:] == [200, 429] and Subscription.objects.count() == 10
    assert asked(client.__class__(REMOTE_ADDR="198.51.100.7"), address="other@mail.example") == 200


def test_tests_are_limited_and_need_a_confirmed_address(client: Client) -> None:
    asked(client)
    path = f"/alerts/{Subscription.objects.get().secret}"
    client.post(path, {"action": "test"})
    assert not Delivery.objects.filter(news="test").exists()
    client.post(path, {"action": "confirm"})
    statuses = [client.post(path, {"action": "test"}).status_code for _ in range(13)]
    assert statuses[-2:] == [200, 429] and Delivery.objects.filter(news="test").count() == 12


def test_where_nothing_can_be_counted_nothing_is_sent(client: Client, settings: Any) -> None:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    }
    assert asked(client) == 429 and not Delivery.objects.exists()


def test_the_secret_page_is_kept_by_nobody_and_passed_on_to_nobody(client: Client) -> None:
    asked(client)
    answer = client.get(f"/alerts/{Subscription.objects.get().secret}")
    assert answer["Cache-Control"] == "private, no-store" and answer["Referrer-Policy"] == "no-referrer"
    assert answer["X-Robots-Tag"] == "noindex" and not answer.cookies
    assert client.get("/alerts/" + "x" * 32).status_code == 404


def test_a_form_can_be_filled_in_by_a_link(client: Client) -> None:
    page = client.get(f"/alerts?topic=peer&peer={peer_id('a')}").content.decode()
    assert f'value="{peer_id("a")}"' in page and '<option value="peer" selected>' in page and 'role="alert"' not in page


def test_a_site_without_mail_offers_webhooks_only(client: Client, settings: Any) -> None:
    settings.SEPAL_MAIL_FROM = ""
    assert 'value="email"' not in client.get("/alerts").content.decode()
    assert asked(client) == 422


def test_what_was_stopped_can_be_started_again(client: Client) -> None:
    asked(client)
    Subscription.objects.update(confirmed_at=datetime.now(UTC), stopped="the receiver answered 410")
    path = f"/alerts/{Subscription.objects.get().secret}"
    assert "Start again" in client.get(path).content.decode()
    client.post(path, {"action": "confirm"})
    assert Subscription.objects.get().stopped == ""
