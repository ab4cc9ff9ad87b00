"""Traffic recorded from real Petals peers (`tests/data/petals/README.md`), as calls with their messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hivemind.proto import runtime_pb2

from swarm.wire.spans import Span

DATA = Path(__file__).parent.parent / "data" / "petals"


@dataclass(frozen=True)
class Call:
    """`events` holds kind ("request", "response", "error") and raw bytes or the error's text, in order."""

    family: str
    number: int
    scene: str
    rpc: str
    streams: bool
    span: Span
    events: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return f"{self.family}-{self.number}-{self.scene}-{self.rpc.rsplit('.', 1)[-1]}-{self.span}"

    def requests(self, kind: type[Any] = runtime_pb2.ExpertRequest) -> list[Any]:
        return [kind.FromString(raw) for event, raw in self.events if event == "request"]

    def responses(self, kind: type[Any] = runtime_pb2.ExpertResponse) -> list[Any]:
        return [kind.FromString(raw) for event, raw in self.events if event == "response"]

    @property
    def error(self) -> str | None:
        return next((text for event, text in self.events if event == "error"), None)


@cache
def manifest(family: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DATA / family / "manifest.json").read_text())
    return read


def model_folder(family: str) -> Path:
    return DATA / str(manifest(family)["model_folder"])


def spans(family: str) -> list[Span]:
    return [Span(start, end) for start, end, _ in manifest(family)["spans"]]


@cache
def calls(family: str) -> tuple[Call, ...]:
    span_of = {peer: Span(start, end) for start, end, peer in manifest(family)["spans"]}
    return tuple(
        Call(
            family=family,
            number=number,
            scene=call["scene"],
            rpc=call["rpc"],
            streams=call["kind"] == "stream",
            span=span_of[call["peer"]],
            events=tuple(
                (kind, what if kind == "error" else (DATA / family / what).read_bytes()) for kind, what in call["events"]
            ),
        )
        for number, call in enumerate(manifest(family)["calls"])
    )
