"""`sepal hints`: where a server is needed most, and what became of the newest hints, in the site's own words.

Plans nothing itself: the site knows what is promised already, how much of a reported speed is believed, and whether it can see
the swarm at all. Asks for no lease and reserves nothing.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from blockserver.running import EXIT_FAILED
from blockserver.site import LONGEST_SENTENCE, Refused, read_json, read_list
from swarm.errors import BadRecord, LocalError, RemoteError
from swarm.wire.keys import MAX_BLOCKS, parse_peer_id, parse_prefix
from swarm.wire.text import clean_text

NEWEST = 5
NOT_FOUND = 404
MOST_GB, MOST_BILLIONS = 10_000.0, 100_000.0
"""As the site has them: it is not asked what it would refuse."""
ADVICE = "This is advice of the moment; `sepal serve --coordinator` is given its blocks when it starts."
_OUTCOMES = {"open": "○", "followed": "✓"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask the site about: one model or all, a server of so many blocks or of so much memory, one that leaves."""

    prefix: str | None = None
    num_blocks: int | None = None
    memory_gb: float | None = None
    precision: str = "bfloat16"
    parameters_b: float | None = None
    leaves: str | None = None

    def __post_init__(self) -> None:
        if self.num_blocks is not None and not 1 <= self.num_blocks <= MAX_BLOCKS:
            raise LocalError(f"--num-blocks {self.num_blocks}: say a number from 1 to {MAX_BLOCKS}, or --memory-gb instead")
        if self.memory_gb is not None and not 0 < self.memory_gb <= MOST_GB:
            raise LocalError(
                f"--memory-gb {self.memory_gb:g}: say the memory of your card, more than 0 and at most {MOST_GB:g} GB"
            )
        if self.parameters_b is not None and not 0 < self.parameters_b <= MOST_BILLIONS:
            at_most = f"more than 0 and at most {MOST_BILLIONS:g}"
            raise LocalError(f"--parameters-b {self.parameters_b:g}: say billions of parameters, {at_most}")
        _check(parse_prefix, self.prefix, "--prefix", "a model's name as `sepal status` shows it")
        _check(parse_peer_id, self.leaves, "--leaves", "a peer id as the site shows it, 12D3KooW… or Qm…")


def _check(parse: Callable[[object], str], given: str | None, name: str, wanted: str) -> None:
    try:
        if given is not None:
            parse(given)
    except BadRecord as error:
        raise LocalError(f"{name} {clean_text(given) or '(nothing)'}: say {wanted}") from error


def show_hints(site: str, wanted: Wanted, *, as_json: bool) -> int:
    """The exit code."""
    try:
        found = report(site, wanted)
        lines = list(lines_of(found, datetime.now(UTC)))
    except RemoteError as error:
        print(f"sepal: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    except (KeyError, TypeError, ValueError) as error:
        print(f"sepal: {site} answers in an unknown form ({type(error).__name__}: {error})", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if as_json:
        print(json.dumps(found, indent=2))  # noqa: T201
        return 0
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        for part in _wrapped(line, console.width if console.is_terminal else None):
            console.print(part)
    return 0


def report(site: str, wanted: Wanted) -> dict[str, Any]:
    """The site's documents of `/needed`, `/fits`, `/what-if` and `/hints`, put together. RemoteError where it tells nothing."""
    needed = read_list(site, "/needed", model=wanted.prefix, num_blocks=wanted.num_blocks)
    items = [_of_model(site, item, wanted) for item in needed["items"]]
    hints = read_list(site, "/hints", model=wanted.prefix, limit=NEWEST)["items"]
    return {
        "swarm": needed["swarm"],
        "observed_at": needed["observed_at"],
        "snapshot_id": needed["snapshot_id"],
        "items": items,
        "hints": [{name: hint[name] for name in _HINT} for hint in hints],
    }


_HINT = (
    "id",
    "created_at",
    "prefix",
    "from_model",
    "peer_id",
    "start",
    "end",
    "reason_code",
    "reason",
    "outcome",
    "repaired_s",
)


def _of_model(site: str, item: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    prefix, fits = item["prefix"], None
    if wanted.memory_gb is not None:
        card = {"memory_gb": wanted.memory_gb, "precision": wanted.precision, "parameters_b": wanted.parameters_b}
        fits = read_json(site, "/fits", model=prefix, **card)
        if fits["num_blocks"] and wanted.num_blocks is None:
            (item,) = read_list(site, "/needed", model=prefix, num_blocks=fits["num_blocks"])["items"]
    return {
        "prefix": prefix,
        "num_blocks": item["num_blocks"],
        "summary": item["summary"],
        "cards": item["cards"],
        "fits": {"num_blocks": fits["num_blocks"], "words": fits["words"]} if fits is not None else None,
        "without": _without(site, prefix, wanted.leaves) if wanted.leaves is not None else None,
    }


def _without(site: str, prefix: str, peer_id: str) -> str | None:
    """What happens if this server leaves; None for a model that it does not serve."""
    try:
        words = read_json(site, "/what-if", model=prefix, leaves=peer_id)["words"]
    except Refused as error:
        if error.status != NOT_FOUND:
            raise
        return None
    return str(words)


def lines_of(found: dict[str, Any], now: datetime) -> Iterator[Text]:
    """The report for people, a line each."""
    age_s = (now - datetime.fromisoformat(found["observed_at"])).total_seconds()
    for item in found["items"]:
        checked = f"   checked {max(0.0, age_s):.0f} s ago"
        yield Text.assemble((_plain(item["prefix"]), "bold"), f"  {_plain(item['summary'])}", (checked, "dim"))
        yield from _needs(item)
    if not found["items"]:
        yield Text("No model has been announced in this swarm yet.")
        return
    yield Text(f"  {ADVICE}", style="dim")
    yield from _newest(found["hints"])


def _needs(item: dict[str, Any]) -> Iterator[Text]:
    if item["without"] is not None:
        yield Text(f"  {_plain(item['without'])}")
    fits = item["fits"]
    if fits is not None:
        yield Text(f"  {_plain(fits['words'])}")
        if fits["num_blocks"] == 0:
            return
    count = int(item["num_blocks"])
    yield Text(f"  A server of {count} {'block' if count == 1 else 'blocks'} helps most on:")
    for number, card in enumerate(item["cards"], start=1):
        rest = " (if others took the above)" if number > 1 else ""
        yield Text.assemble(f"  {number}. ", (_plain(card["blocks"]), "bold"), f": {_plain(card['reason'])}{rest}")
        yield Text(f"     → {_plain(card['effect'])}")


def _newest(hints: Iterable[dict[str, Any]]) -> Iterator[Text]:
    kept = list(hints)
    if not kept:
        return
    yield Text("Newest hints:", style="bold")
    for hint in kept:
        at = datetime.fromisoformat(hint["created_at"]).astimezone(UTC)
        took = f" in {float(hint['repaired_s']):.0f} s" if hint["repaired_s"] is not None else ""
        outcome = _plain(hint["outcome"])
        blocks = f"{int(hint['start'])}–{int(hint['end']) - 1}"
        left = f" from {_plain(hint['from_model'])}" if hint["from_model"] not in (None, hint["prefix"]) else ""
        yield Text.assemble(
            f"  {_OUTCOMES.get(outcome, '–')} {at:%d %b %H:%M:%S} UTC  {_plain(hint['prefix'])} {blocks} "
            f"to …{_plain(hint['peer_id'])[-6:]}{left}: {outcome}{took}",
            (f"  ({_plain(hint['reason'])})", "dim"),
        )


def _wrapped(line: Text, width: int | None) -> list[Text]:
    """On a terminal, lines that are longer than it go on below their own beginning; what is piped is left whole."""
    plain = line.plain
    if width is None or len(plain) <= width:
        return [line]
    indent = len(plain) - len(plain.lstrip()) + 2
    parts = textwrap.wrap(plain, width, subsequent_indent=" " * indent, drop_whitespace=True)
    return [_styled(line, part, number) for number, part in enumerate(parts)]


def _styled(line: Text, part: str, number: int) -> Text:
    # Wrapping moves characters; only a style of the whole line, or of its beginning, can be kept.
    text = Text(part, style=line.style)
    if number == 0:
        for span in line.spans:
            if span.end <= len(part):
                text.stylize(span.style, span.start, span.end)
    return text


def _plain(value: object) -> str:
    return clean_text(value, LONGEST_SENTENCE) or ""
