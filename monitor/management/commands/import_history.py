"""`manage.py import_history FOLDER`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from monitor.history.backup import DECIDED, put_back
from swarm.errors import LocalError


class Command(BaseCommand):
    help = "Puts a history that export_history wrote into a new database: after migrate, before the first crawl."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            rows = put_back(folder)
        except LocalError as error:
            raise CommandError(str(error)) from error
        if not rows.keys() & DECIDED.keys():
            self.stderr.write(
                "This backup was written by an older Sepal: it does not say who is hidden or quarantined. Hide them again"
                " (manage.py hide) before the site is opened."
            )
        self.stdout.write(f"{sum(rows.values())} rows of {len(rows)} tables are back.")
