"""Makes a person of the site's staff, or gives one a new password. Run by whoever may run commands on the server."""

from __future__ import annotations

import getpass
import secrets
import sys
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from coordinator.desk import decisions


class Command(BaseCommand):
    help = "Make a log-in for /admin/, or give one a new password; it is asked for, or made up and shown once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="what the person logs in with")
        parser.add_argument("--superuser", action="store_true", help="may also manage the other people of the staff")
        parser.add_argument("--made-up", action="store_true", help="do not ask for a password: make one up and print it, once")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._make(options["name"], options["superuser"], options["made_up"])
        except OperationalError as error:
            raise CommandError("The database does not answer: does the site run, and is DATABASE_URL the same?") from error

    def _make(self, name: str, superuser: bool, made_up: bool) -> None:
        person = User.objects.filter(username=name).first()
        new = person is None
        person = person or User(username=name)
        person.is_staff = person.is_active = True
        # The first one must be able to make the others.
        person.is_superuser = person.is_superuser or superuser or not User.objects.filter(is_superuser=True).exists()
        made_up = made_up or not sys.stdin.isatty()
        password = secrets.token_urlsafe(15) if made_up else self._asked(person)
        try:
            person.full_clean(exclude=["password"])
            validate_password(password, person)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        person.set_password(password)
        person.save()
        decisions.write_down(person, person, ADDITION if new else CHANGE, "Password set on the server's command line.")
        if made_up:
            self.stdout.write(f"The password of {name}, shown this once: {password}")
        self.stdout.write(f"{name} can log in at /admin/{' and manage the staff' if person.is_superuser else ''}.")

    def _asked(self, person: User) -> str:
        first = getpass.getpass(f"Password for {person.username}: ")
        if first != getpass.getpass("Once more: "):
            raise CommandError("These two were not the same; nothing was changed.")
        return first
