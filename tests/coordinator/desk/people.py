"""Staff, and what they decide, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.test import Client

from coordinator.desk.models import Kind, Ruling

PASSWORD = "only for these tests"


def person(name: str = "ada", staff: bool = True, superuser: bool = False) -> User:
    user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": staff, "is_superuser": superuser})
    user.set_password(PASSWORD)
    user.save()
    return user


def logged_in(name: str = "ada", **kind: bool) -> Client:
    client = Client()
    client.force_login(person(name, **kind))
    return client


def decided(
    kind: Kind,
    subject: str = "",
    words: str = "sends wrong tensors",
    since_s: float = -60,
    until_s: float = 3_600,
    swarm: str = "",
) -> Ruling:
    """In seconds from now."""
    now = datetime.now(UTC)
    return Ruling.objects.create(
        kind=kind,
        swarm=swarm,
        subject=subject,
        words=words,
        starts_at=now + timedelta(seconds=since_s),
        ends_at=now + timedelta(seconds=until_s),
        made_by=person(),
        made_at=now,
    )
