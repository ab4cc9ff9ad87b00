"""`manage.py openapi`: writes docs/openapi.json anew. A change that would break readers of v1 is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from coordinator.api import api
from monitor.api.contract import breaking

PATH: Path = settings.BASE_DIR / "docs" / "openapi.json"


class Command(BaseCommand):
    help = "Writes docs/openapi.json, unless that would break programs that rely on the one there is."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; fail where the file is not what the code says")
        parser.add_argument(
            "--break", action="store_true", dest="break_it", help="write it all the same (before a first release)"
        )

    def handle(self, *args: Any, check: bool = False, break_it: bool = False, **options: Any) -> None:
        written = text_of(api.get_openapi_schema())
        before = PATH.read_text() if PATH.exists() else ""
        broken = breaking(json.loads(before), json.loads(written)) if before else []
        if broken and not break_it:
            raise CommandError("this would break programs that rely on v1:\n" + "\n".join(f"  {what}" for what in broken))
        if check and before != written:
            raise CommandError("docs/openapi.json is not what the code says: run `python manage.py openapi`")
        if not check:
            PATH.write_text(written)
            self.stdout.write(f"{PATH}: {len(json.loads(written)['paths'])} addresses")


def text_of(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
