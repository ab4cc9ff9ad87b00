"""`sepal hints`: where a server is needed most, read from the site. Asks for no lease and promises nothing: with
`--num-blocks` the same planner that the coordinator runs says where such a server would go now.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from blockserver.running import EXIT_FAILED
from blockserver.site import read_models
from swarm.errors import RemoteError
from swarm.placement import choose_span
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span, in_words


def show_hints(site: str, *, prefix: str | None, num_blocks: int | None, as_json: bool) -> int:
    """The exit code."""
    try:
        items = [item for item in read_models(site) if prefix in (None, item.get("prefix"))]
        reports = [report(item, num_blocks) for item in items]
    except RemoteError as error:
        print(f"sepal: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    if as_json:
        print(json.dumps({"items": reports}, indent=2))  # noqa: T201
        return 0
    console = Console(highlight=False, soft_wrap=True)
    for item in reports:
        console.print(lines_of(item))
    if not reports:
        console.print(
            f"The swarm announces no model {prefix!r}." if prefix else "No model has been announced in this swarm yet."
        )
    return 0


def report(item: dict[str, Any], num_blocks: int | None) -> dict[str, Any]:
    """What one model needs; `advice` is where a server of `num_blocks` blocks would go. RemoteError on a malformed item."""
    try:
        model = _model(item)
        holes, thin = _spans(item["holes"]), _spans(item["thin"])
    except (KeyError, TypeError, ValueError) as error:
        raise RemoteError(f"the site describes a model in an unknown form ({type(error).__name__}: {error})") from error
    seen = not item.get("stale", False)
    placement = choose_span(model, num_blocks) if num_blocks and seen else None
    return {
        "prefix": model.prefix,
        "num_blocks": model.num_blocks,
        "no_server": [[span.start, span.end] for span in holes],
        "one_server": [[span.start, span.end] for span in thin],
        "not_read": [list(pair) for pair in item["unread"]],
        "not_known": str(item.get("sentence") or "unknown") if item.get("verdict") == "unknown" else None,
        "advice": {
            "start": placement.span.start,
            "end": placement.span.end,
            "reason_code": placement.reason_code.value,
            "reason": placement.reason,
        }
        if placement
        else None,
    }


def lines_of(item: dict[str, Any]) -> Text:
    lines = [Text(str(item["prefix"]), style="bold")]
    for key, words, style in (("no_server", "no server", "red"), ("one_server", "one server", "yellow")):
        spans = _spans(item[key])
        if spans:
            lines.append(Text.assemble("  ", (f"{words}: ", style), in_words(spans)))
    if item["not_known"]:
        lines.append(Text(f"  {item['not_known']}"))
    elif item["not_read"]:
        lines.append(Text(f"  could not be read: {in_words(_spans(item['not_read']))}"))
    elif len(lines) == 1:
        lines.append(Text("  every block has two servers or more"))
    advice = item["advice"]
    if advice:
        span = Span(advice["start"], advice["end"])
        lines.append(Text(f"  a server like yours would take {span.in_words()}: {advice['reason']}"))
        lines.append(
            Text("  this is advice of the moment; `sepal serve --coordinator` is given its blocks when it starts", style="dim")
        )
    return Text("\n").join(lines)


def _model(item: dict[str, Any]) -> Model:
    servers = [
        Server(
            str(one["peer_id"]),
            Span(one["start"], one["end"]),
            PeerState(one["state"]),
            ServerRecord(ServerState.ONLINE, _rate(one.get("throughput_tokens_per_second"))),
            expires_at=float("inf"),
        )
        for one in item["servers"]
    ]
    unread = frozenset(block for span in _spans(item["unread"]) for block in span)
    return Model(
        str(item["prefix"]), int(item["num_blocks"]), None, tuple(servers), unread, at_least=item.get("size_known") is False
    )


def _spans(pairs: list[list[int]]) -> list[Span]:
    return [Span(start, end) for start, end in pairs]


def _rate(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
