"""`sepal status`: the site's answer to "can I use it now?", in the site's own words. Reads `GET /api/v1/models`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from blockserver.running import EXIT_FAILED, EXIT_INCOMPLETE
from blockserver.site import read_document
from swarm.errors import RemoteError

MARKS = {"complete": ("✓", "green"), "thin": ("!", "yellow"), "broken": ("✕", "red"), "unknown": ("?", "magenta")}
LEVELS = "✕▁▂▄▆█"
"""No server, one, two, three, four, five or more."""


def show_status(site: str, *, as_json: bool, check: bool) -> int:
    """The exit code."""
    try:
        document = read_document(site)
    except RemoteError as error:
        print(f"sepal: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    items: list[dict[str, Any]] = document["items"]
    if as_json:
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        console = Console(highlight=False, soft_wrap=True)
        for item in items:
            for line in lines_of(item, datetime.now(UTC)):
                console.print(line)
        if not items:
            console.print("No model has been announced in this swarm yet.")
    broken = any(item.get("verdict") not in ("complete", "thin") for item in items) or not items
    return EXIT_INCOMPLETE if check and broken else 0


def lines_of(item: dict[str, Any], now: datetime) -> list[Text]:
    mark, colour = MARKS.get(str(item.get("verdict")), MARKS["unknown"])
    observed = item.get("observed_at")
    age = f"checked {(now - datetime.fromisoformat(observed)).total_seconds():.0f} s ago" if observed else "not checked yet"
    states = [server.get("state") for server in item.get("servers", ())]
    counts = " · ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    strip = "".join(LEVELS[min(int(count or 0), 5)] if count is not None else "?" for count in item.get("blocks", ()))
    return [
        Text.assemble(
            (f"{mark} ", colour), (str(item.get("prefix")), "bold"), f" {item.get('sentence')}", (f"   {age}", "dim")
        ),
        Text(f"  blocks 0–{int(item.get('num_blocks', 1)) - 1}  {strip}  servers {counts or 'none'}"),
    ]
