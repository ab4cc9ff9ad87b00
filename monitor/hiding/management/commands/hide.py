"""`manage.py hide name NAME`, `hide peer PEER_ID`, each also with --undo; `hide list`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from monitor.hiding.models import Hidden, Kind
from monitor.hiding.rules import name_key
from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id


class Command(BaseCommand):
    help = "Hides a public name or a peer from everything that this site shows, from the next request on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=["name", "peer", "list"])
        parser.add_argument("value", nargs="?", default="")
        parser.add_argument("--reason", default="")
        parser.add_argument("--undo", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["kind"] == "list":
            for row in Hidden.objects.order_by("kind", "value"):
                self.stdout.write(f"{row.kind} {row.value} {row.alias} {row.reason}".rstrip())
            return
        kind, value = Kind(options["kind"]), self._value(options)
        if options["undo"]:
            gone, _ = Hidden.objects.filter(kind=kind, value=value).delete()
            self.stdout.write(f"{value} is shown again" if gone else f"{value} was not hidden")
            return
        row, _ = Hidden.objects.get_or_create(kind=kind, value=value, defaults={"reason": options["reason"][:200]})
        self.stdout.write(f"{value} is hidden" + (f", and shown as {row.alias}" if kind is Kind.PEER else ""))

    def _value(self, options: dict[str, Any]) -> str:
        value = str(options["value"]).strip()
        if not value or len(value) > 128:
            raise CommandError("name what is to be hidden, in up to 128 characters")
        try:
            return parse_peer_id(value) if options["kind"] == Kind.PEER else name_key(value)
        except BadRecord as error:
            raise CommandError(f"{value} is no peer id: {error.detail}") from error
