"""`manage.py export_history FOLDER`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from monitor.history.backup import take
from swarm.errors import LocalError


class Command(BaseCommand):
    help = "Writes the history (minutes, days, hours, incidents, models, servers) and the staff's decisions to a folder."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            rows = take(folder)
        except LocalError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{sum(rows.values())} rows of {len(rows)} tables are in {folder}.")
