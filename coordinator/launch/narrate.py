"""What changed between two answers of `/api/v1/models`, in lines for people. Pure: no clock, no network, no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from swarm.wire.spans import Span, in_words

Model = Mapping[str, Any]
SYMBOLS = {"complete": "✓", "thin": "✓", "broken": "✕"}
PHASES = {
    "accepted": "accepted and loads",
    "done": "is seen online with",
    "declined": "declined",
    "stale": "need not serve any more:",
    "expired": "did not come to serve in time:",
}
TAIL = 6


def narrate(
    previous: Mapping[str, Any] | None, current: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> list[str]:
    """`names` are what the reader calls the servers, by peer id; others are called by the end of their peer id."""
    before = {model["prefix"]: model for model in (previous or {}).get("items", ())}
    now = {model["prefix"]: model for model in current.get("items", ())}
    lines: list[str] = []
    for prefix, model in now.items():
        label = f"{prefix}: " if len(now) > 1 else ""
        lines += [label + line for line in _model_lines(before.get(prefix, {}), model, names or {})]
    lines += [f"{prefix} is no longer announced" for prefix in before if prefix not in now]
    return lines


def who(peer_id: str, names: Mapping[str, str]) -> str:
    short = f"…{peer_id[-TAIL:]}"
    return f"{names[peer_id]} ({short})" if peer_id in names else short


def _model_lines(before: Model, now: Model, names: Mapping[str, str]) -> Iterator[str]:
    yield from _server_lines(_by_peer(before, "servers"), _by_peer(now, "servers"), names)
    yield from _lease_lines(_by_lease(before), _by_lease(now), names)
    if _verdict(before) != _verdict(now):
        yield _verdict(now)
    if bool(before.get("stale")) != bool(now.get("stale")):
        yield "the page is stale: no new crawl is believable" if now.get("stale") else "the page is fresh again"


def _verdict(model: Model) -> str:
    if not model:
        return ""
    verdict = str(model.get("verdict", "unknown"))
    holes = [Span(start, end) for start, end in model.get("holes", ())]
    said = str(model.get("sentence") or "")
    if not said:
        said = f"cannot run: {in_words(holes)} without a server" if holes else verdict
    return f"{SYMBOLS.get(verdict, '?')} {said}"


def _server_lines(before: Mapping[str, Model], now: Mapping[str, Model], names: Mapping[str, str]) -> Iterator[str]:
    for peer_id, server in now.items():
        old = before.get(peer_id)
        state = str(server.get("state", "unknown")).lower()
        if old is None:
            yield f"{who(peer_id, names)} {state}: {_held(server)}"
        elif _held(old) != _held(server):
            yield f"{who(peer_id, names)} moved from {_held(old)} to {_held(server)}, {state}"
        elif str(old.get("state", "unknown")).lower() != state:
            yield f"{who(peer_id, names)} {state}: {_held(server)}"
    for peer_id in before:
        if peer_id not in now:
            yield f"{who(peer_id, names)} is gone"


def _lease_lines(before: Mapping[str, Model], now: Mapping[str, Model], names: Mapping[str, str]) -> Iterator[str]:
    for lease_id, lease in now.items():
        old = before.get(lease_id)
        server, blocks = who(lease["peer_id"], names), Span(lease["start"], lease["end"]).in_words()
        if old is None:
            yield f"hint: {server} was asked to serve {blocks}: {lease.get('reason', 'no reason given')}"
        elif old.get("phase") != lease.get("phase"):
            yield f"hint: {server} {PHASES.get(str(lease.get('phase')), lease.get('phase'))} {blocks}"


def _held(server: Model) -> str:
    start, end = server.get("start"), server.get("end")
    return Span(start, end).in_words() if start is not None and end is not None else "no blocks"


def _by_peer(model: Model, field: str) -> dict[str, Model]:
    return {entry["peer_id"]: entry for entry in model.get(field, ())}


def _by_lease(model: Model) -> dict[str, Model]:
    """A server may have had several. One that leads to another model is told there."""
    here = (lease for lease in model.get("leases", ()) if lease.get("model", model.get("prefix")) == model.get("prefix"))
    return {str(lease["id"]): lease for lease in here}
