"""What is sent: OpenAI's objects for chat and for plain completion, as chunks and whole. Pure.

`sepal` is an extension that SDKs pass over: the servers that answered, and how fast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swarm.routing import Route


@dataclass(frozen=True, slots=True)
class Report:
    """`tokens_per_second` counts from the first token to the last; None where there were fewer than two."""

    route: Route
    tokens_per_second: float | None
    recoveries: int

    def document(self) -> dict[str, Any]:
        rate = self.tokens_per_second
        return {
            "route": [{"peer": hop.peer_id, "blocks": f"{hop.span.start}-{hop.span.end - 1}"} for hop in self.route],
            "tokens_per_second": None if rate is None else round(rate, 2),
            "recoveries": self.recoveries,
        }


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int

    def document(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all chunks of one answer have in common. `created` is in Unix seconds."""

    id: str
    created: int
    model: str
    chat: bool
    include_usage: bool = False

    def begin(self, report: Report) -> dict[str, Any]:
        return self._chunk(self._piece("", begins=True), report)

    def piece(self, text: str) -> dict[str, Any]:
        return self._chunk(self._piece(text))

    def end(self, reason: str, report: Report) -> dict[str, Any]:
        last: dict[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk({**last, "finish_reason": reason}, report)

    def usage(self, usage: Usage, report: Report) -> dict[str, Any]:
        return {**self._common(chunk=True), "choices": [], "usage": usage.document(), "sepal": report.document()}

    def waiting(self, before: int) -> dict[str, Any]:
        """Only for those who asked for it."""
        return {**self._common(chunk=True), "choices": [], "sepal": {"waiting_before": before}}

    def whole(self, text: str, reason: str, usage: Usage, report: Report) -> dict[str, Any]:
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}} if self.chat else {"text": text}
        )
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return {
            **self._common(chunk=False),
            "choices": [choice],
            "usage": usage.document(),
            "sepal": report.document(),
        }

    def _piece(self, text: str, begins: bool = False) -> dict[str, Any]:
        if not self.chat:
            return {"text": text}
        return {"delta": {"role": "assistant", "content": text} if begins else {"content": text}}

    def _chunk(self, said: Mapping[str, Any], report: Report | None = None) -> dict[str, Any]:
        choice = {"index": 0, "logprobs": None, "finish_reason": None, **said}
        chunk = {**self._common(chunk=True), "choices": [choice]}
        if self.include_usage:
            chunk["usage"] = None
        if report is not None:
            chunk["sepal"] = report.document()
        return chunk

    def _common(self, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion" + (".chunk" if chunk else "")) if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def line(document: Mapping[str, Any]) -> str:
    """Without blanks, and in UTF-8: a token a chunk, so the frame is most of what is sent."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
