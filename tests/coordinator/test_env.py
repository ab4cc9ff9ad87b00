"""Settings from the environment fail loudly, and say what would be right."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from coordinator import env


def test_without_a_mail_server_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEPAL_SMTP_URL", raising=False)
    assert env.mail() == {"EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend"}


@pytest.mark.parametrize(
    ("url", "port", "tls", "ssl"),
    [
        ("smtp://me:p%40ss@mail.example", 587, True, False),
        ("smtp://me:p%40ss@mail.example:25?tls=off", 25, False, False),
        ("smtps://me:p%40ss@mail.example", 465, False, True),
    ],
)
def test_a_mail_server_is_read_from_its_address(
    monkeypatch: pytest.MonkeyPatch, url: str, port: int, tls: bool, ssl: bool
) -> None:
    monkeypatch.setenv("SEPAL_SMTP_URL", url)
    found = env.mail()
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"], found["EMAIL_HOST_PASSWORD"]) == ("mail.example", port, "p@ss")
    assert (found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"]) == (tls, ssl)


@pytest.mark.parametrize("url", ["mail.example", "http://mail.example", "smtp://", "smtp://h:99999", "smtp://h?tls=maybe"])
def test_what_is_no_mail_server_is_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SEPAL_SMTP_URL", url)
    with pytest.raises(ImproperlyConfigured, match="SEPAL_SMTP_URL"):
        env.mail()


def test_whole_numbers_are_read_and_others_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.number("SEPAL_NOT_SET", 7) == 7
    monkeypatch.setenv("SEPAL_EXPORT_DAYS", "30")
    assert env.number("SEPAL_EXPORT_DAYS", 400) == 30
    for wrong in ("-1", "1.5", "many"):
        monkeypatch.setenv("SEPAL_EXPORT_DAYS", wrong)
        with pytest.raises(ImproperlyConfigured, match="SEPAL_EXPORT_DAYS"):
            env.number("SEPAL_EXPORT_DAYS", 400)
