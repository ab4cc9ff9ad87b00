"""`manage.py remake_exports [DAY ...]`: makes files again, for a peer that opted out after they were made."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from monitor.exports.making import make_day
from monitor.exports.models import Export


class Command(BaseCommand):
    help = "Makes exported days again, without those who are hidden by now. Days whose servers are forgotten lose those."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("days", nargs="*", metavar="YYYY-MM-DD", help="all that are there, where none is named")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            days = [date.fromisoformat(day) for day in options["days"]]
        except ValueError as error:
            raise CommandError(f"{error}; a day reads 2026-09-21") from error
        for day in days or list(Export.objects.order_by("day").values_list("day", flat=True)):
            made = make_day(day, datetime.now(UTC), again=True)
            self.stdout.write(f"{day}: {made.lines} lines, {made.size:,} bytes")
