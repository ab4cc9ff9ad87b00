"""Messages reach real receivers: signed, once, tried again with patience, and never where they must not go."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail as django_mail
from django.db import connection

from monitor.alerts import outbox, webhook
from monitor.alerts.messages import of_test
from monitor.alerts.models import Delivery, Subscription
from monitor.alerts.outbox import BACKOFF, DeliveryFailed
from monitor.alerts.rules import News
from monitor.alerts.tasks import deliver, send
from tests.monitor.alerts.receivers import MailServer, Receiver, certificate, mail_server, receiving

pytestmark = pytest.mark.django_db

START = datetime(2026, 9, 21, 14, tzinfo=UTC)


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.SEPAL_ALERTS_PRIVATE = True
    with receiving() as started:
        yield started


@pytest.fixture
def postman(settings: Any) -> Iterator[MailServer]:
    with mail_server() as started:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", started.port, False
        settings.SEPAL_MAIL_FROM = "sepal@swarm.example"
        yield started


def to(address: str, way: str = "webhook", news: News = News.TEST) -> Delivery:
    mine = Subscription.objects.create(
        swarm="main", topic="model", prefix="tiny-hf", way=way, address=address, created_at=START, confirmed_at=START
    )
    return outbox.put(mine, news, of_test(mine, START.timestamp()), START)


def fresh(delivery: Delivery) -> Delivery:
    delivery.refresh_from_db()
    return delivery


def test_a_webhook_gets_a_signed_message_that_ten_lines_can_check(receiver: Receiver) -> None:
    delivery = to(f"{receiver.url}/in?k=v")
    assert outbox.run(START, send) == 1
    (got,) = receiver.got
    assert got.path == "/in?k=v" and got.headers["Host"] == receiver.url.removeprefix("http://")
    message = json.loads(got.body)
    assert message["id"] == got.headers["Sepal-Delivery"] == str(delivery.pk) and message["event"] == "test"
    signed = got.headers["Sepal-Timestamp"].encode() + b"." + got.body
    expected = hmac.new(delivery.subscription.signing_key.encode(), signed, hashlib.sha256).hexdigest()
    assert got.headers["Sepal-Signature"] == f"v1={expected}"
    assert fresh(delivery).sent_at == START and outbox.run(START, send) == 0


def test_the_example_in_the_documentation_checks_a_real_message(receiver: Receiver) -> None:
    """And refuses it with a changed body, another key, or too late."""
    delivery = to(receiver.url)
    outbox.run(START, send)
    (got,) = receiver.got
    text = (Path(__file__).resolve().parents[3] / "docs" / "integrations.md").read_text()
    source = text.split("```python\n# check.py\n", 1)[1].split("```", 1)[0]
    assert len(source.strip().splitlines()) <= 10
    scope: dict[str, Any] = {}
    exec(source, scope)
    genuine, key, headers = scope["genuine"], delivery.subscription.signing_key, got.headers
    assert genuine(key, headers, got.body)
    assert not genuine(key, headers, got.body + b" ")
    assert not genuine("another", headers, got.body)
    assert not genuine(key, {**headers, "Sepal-Timestamp": str(int(headers["Sepal-Timestamp"]) - 400)}, got.body)


def test_a_receiver_that_fails_is_tried_again_later_and_later_and_then_given_up(receiver: Receiver) -> None:
    receiver.statuses = [503]
    delivery = to(receiver.url)
    now = START
    waits = []
    while fresh(delivery).given_up_at is None:
        assert outbox.run(now, send) == 1
        if fresh(delivery).given_up_at is None:
            assert outbox.run(now, send) == 0, "not before it is due"
            waits.append(delivery.due_at - now)
            now = delivery.due_at
    assert len(receiver.got) == len(BACKOFF) + 1 and "503" in delivery.last_error
    assert all(least <= wait <= 1.25 * least for least, wait in zip(BACKOFF, waits, strict=True))
    assert len({got.headers["Sepal-Delivery"] for got in receiver.got}) == 1, "the same id, so that a receiver can tell"


def test_a_receiver_that_comes_back_gets_its_message(receiver: Receiver) -> None:
    receiver.statuses = [500, 429, 204]
    delivery, now = to(receiver.url), START
    while fresh(delivery).sent_at is None:
        outbox.run(now, send)
        now = fresh(delivery).due_at
    assert len(receiver.got) == 3 and delivery.last_error == ""


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404])
def test_a_receiver_that_says_no_is_not_asked_again_and_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    delivery = to(receiver.url)
    outbox.run(START, send)
    assert fresh(delivery).given_up_at == START and len(receiver.got) == 1
    assert fresh(delivery).subscription.stopped == ""


def test_a_receiver_that_is_gone_ends_its_subscription(receiver: Receiver) -> None:
    receiver.statuses = [410]
    delivery = to(receiver.url)
    mine = delivery.subscription
    outbox.run(START, send)
    outbox.put(mine, News.TEST, {}, START)
    mine.refresh_from_db()
    assert "410" in mine.stopped and outbox.run(START, send) == 0 and len(receiver.got) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/x", "https://127.0.0.1:{port}/x", "https://localhost:{port}/x"])
def test_without_the_setting_nothing_reaches_this_machine(receiver: Receiver, settings: Any, url: str) -> None:
    settings.SEPAL_ALERTS_PRIVATE = False
    delivery = to(url.format(port=receiver.port))
    outbox.run(START, send)
    assert receiver.got == [] and fresh(delivery).given_up_at == START
    assert "127.0.0.1" not in delivery.last_error


def test_the_connection_goes_to_the_address_that_was_checked_and_the_certificate_must_be_the_names(
    tmp_path: Path, settings: Any
) -> None:
    """A name that resolves differently a moment later leads nowhere else; a machine at the address that is not the named one
    gets nothing."""
    settings.SEPAL_ALERTS_PRIVATE = True
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 or host == "other.example" else ["192.0.2.1"]

    serving, trusting = certificate(tmp_path, "hooks.example")
    with receiving(serving) as receiver:
        webhook.post(to(f"https://hooks.example:{receiver.port}/x"), resolve, trusting)
        assert asked == ["hooks.example"]
        assert receiver.got[0].headers["Host"] == f"hooks.example:{receiver.port}"
        with pytest.raises(DeliveryFailed, match="the connection failed"):
            webhook.post(to(f"https://other.example:{receiver.port}/x"), resolve, trusting)
        with pytest.raises(DeliveryFailed, match="the connection failed"):
            webhook.post(to(f"https://hooks.example:{receiver.port}/y"), one_address, ssl.create_default_context())
        assert len(receiver.got) == 1


async def one_address(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_a_receiver_that_never_ends_its_answer_holds_nobody_up(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    settings.SEPAL_ALERTS_PRIVATE = True
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(DeliveryFailed) as failed:
            webhook.post(to(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
    assert not failed.value.permanent


def test_an_e_mail_goes_through_a_real_mail_server_with_a_way_out(postman: MailServer, settings: Any) -> None:
    delivery = to("someone@mail.example", "email")
    outbox.run(START, send)
    (got,) = postman.got
    link = f"{settings.SEPAL_URL}/alerts/{delivery.subscription.secret}"
    assert (
        got["To"] == "someone@mail.example"
        and got["From"] == "sepal@swarm.example"
        and got["Subject"] == "[Sepal] Test from Sepal"
    )
    assert got["List-Unsubscribe"].strip() == f"<{link}>" and got["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert got["Auto-Submitted"] == "auto-generated" and str(delivery.pk) in got["Message-ID"]
    assert link in got.get_content() and fresh(delivery).sent_at is not None


@pytest.mark.parametrize(("refusal", "final"), [("550 no such user", True), ("451 try later", False)])
def test_what_a_mail_server_refuses_for_good_is_given_up(postman: MailServer, refusal: str, final: bool) -> None:
    postman.refuse = refusal
    delivery = to("someone@mail.example", "email")
    outbox.run(START, send)
    assert (fresh(delivery).given_up_at is not None) == final and postman.got == [] and delivery.last_error


def test_a_mail_server_that_is_down_is_tried_again(settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.SEPAL_MAIL_FROM = "127.0.0.1", 1, "sepal@swarm.example"
    delivery = to("someone@mail.example", "email")
    outbox.run(START, send)
    assert fresh(delivery).given_up_at is None and "127.0.0.1" not in delivery.last_error


def test_a_site_without_mail_gives_up_nothing_before_it_has_tried(settings: Any) -> None:
    settings.SEPAL_MAIL_FROM = ""
    delivery = to("someone@mail.example", "email")
    outbox.run(START, send)
    assert fresh(delivery).last_error == "this site sends no e-mail" and django_mail.outbox == []


def test_a_title_cannot_add_lines_to_a_mail(settings: Any) -> None:
    settings.SEPAL_MAIL_FROM = "sepal@swarm.example"
    delivery = to("someone@mail.example", "email")
    delivery.message["title"] = "x\r\nBcc: everyone@mail.example"
    with pytest.raises(DeliveryFailed):
        send(delivery)
    assert django_mail.outbox == []


def test_a_message_that_we_cannot_send_does_not_hold_up_the_others(receiver: Receiver) -> None:
    broken, sound = to(f"{receiver.url}/broken"), to(f"{receiver.url}/sound")

    def send_or_break(delivery: Delivery) -> None:
        if delivery.pk == broken.pk:
            raise KeyError("our fault")
        send(delivery)

    assert outbox.run(START, send_or_break) == 2
    assert fresh(sound).sent_at == START and "our fault" in fresh(broken).last_error


def test_what_was_waiting_is_forgotten_with_its_subscription() -> None:
    delivery = to("https://hooks.example/x")
    delivery.subscription.delete()
    assert not Delivery.objects.exists() and outbox.run(START, send) == 0


def test_old_messages_and_subscriptions_that_nobody_confirmed_are_forgotten() -> None:
    sent, waiting = to("https://hooks.example/a"), to("https://hooks.example/b")
    Delivery.objects.filter(pk=sent.pk).update(sent_at=START)
    Subscription.objects.filter(pk=waiting.subscription_id).update(confirmed_at=None)
    outbox.forget(START + timedelta(days=1))
    assert Delivery.objects.count() == 2
    outbox.forget(START + timedelta(days=31))
    assert not Delivery.objects.exists() and Subscription.objects.count() == 1


def test_a_message_asks_for_a_worker_after_its_commit(
    asked_for_runs: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        to("https://hooks.example/x")
        assert asked_for_runs == []
    assert asked_for_runs == [1]


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_exactly_one_sends_a_message(receiver: Receiver) -> None:
    for number in range(6):
        to(f"{receiver.url}/{number}")

    def work() -> None:
        try:
            deliver()
        finally:
            connection.close()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(got.path for got in receiver.got) == [f"/{number}" for number in range(6)]


def test_a_claim_of_a_worker_that_died_lapses(receiver: Receiver) -> None:
    delivery = to(receiver.url)

    def die(_: Delivery) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        outbox.run(START, die)
    assert outbox.run(START + timedelta(seconds=60), send) == 0
    assert outbox.run(START + outbox.CLAIMED_FOR, send) == 1 and fresh(delivery).sent_at is not None
