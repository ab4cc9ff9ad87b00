"""Reads settings from the environment, and fails loudly: an error names the variable, its value and what would be right."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, default).strip()


def words(name: str, default: str = "") -> list[str]:
    """Separated by commas or white space."""
    return text(name, default).replace(",", " ").split()


def flag(name: str, default: bool = False) -> bool:
    value = text(name).lower()
    if value in ("", "1", "true", "yes", "on", "0", "false", "no", "off"):
        return value in ("1", "true", "yes", "on") if value else default
    raise ImproperlyConfigured(f"{name}={value!r} is neither true nor false; use 1 or 0")


def seconds(name: str, default: float, minimum: float = 1.0) -> float:
    value = text(name)
    try:
        number = float(value) if value else default
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}={value!r} is no number of seconds") from error
    if not minimum <= number < float("inf"):
        raise ImproperlyConfigured(f"{name}={value!r} is out of range; it must be at least {minimum:g} seconds")
    return number


def number(name: str, default: int, minimum: int = 0) -> int:
    value = text(name)
    if value and not (value.isascii() and value.isdigit() and int(value) >= minimum):
        raise ImproperlyConfigured(f"{name}={value!r} must be a whole number, {minimum} or more")
    return int(value) if value else default


def database(name: str = "DATABASE_URL") -> dict[str, object]:
    """A Django database of `postgres://USER:PASSWORD@HOST:PORT/NAME`; HOST may be empty with `?host=/socket/folder`."""
    url = urlsplit(text(name, "postgres://sepal@127.0.0.1:5432/sepal"))
    if url.scheme not in ("postgres", "postgresql") or not url.path.strip("/"):
        raise ImproperlyConfigured(f"{name} must read postgres://USER:PASSWORD@HOST:PORT/NAME (Sepal needs Postgres)")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(url.path.strip("/")),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname or "",
        "PORT": str(url.port or ""),
        # Kept open between requests; checked first, so that a restart of Postgres costs nobody an error page.
        "CONN_MAX_AGE": 60,
        # A machine that is gone refuses nothing: without a limit each page would wait for minutes.
        "OPTIONS": {"connect_timeout": 3},
        "CONN_HEALTH_CHECKS": True,
    }


def mail(name: str = "SEPAL_SMTP_URL") -> dict[str, object]:
    """Django's mail settings of `smtp://USER:PASSWORD@HOST:587` (STARTTLS; `?tls=off` for a relay on this machine) or
    `smtps://USER:PASSWORD@HOST`. Without the variable nothing is sent."""
    given = text(name)
    if not given:
        return {"EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend"}
    url = urlsplit(given)
    try:
        port = url.port
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} names a port that is none") from error
    if url.scheme not in ("smtp", "smtps") or not url.hostname or url.query not in ("", "tls=off"):
        raise ImproperlyConfigured(f"{name} must read smtp://USER:PASSWORD@HOST:587 or smtps://USER:PASSWORD@HOST")
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": url.hostname,
        "EMAIL_PORT": port or (465 if url.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(url.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(url.password or ""),
        "EMAIL_USE_SSL": url.scheme == "smtps",
        "EMAIL_USE_TLS": url.scheme == "smtp" and not url.query,
        # A server that does not answer must not hold the worker.
        "EMAIL_TIMEOUT": 15,
    }
