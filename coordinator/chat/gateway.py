"""Asks the gateway, and turns what it says into events and sentences. One connection a question; nothing is kept.

It speaks OpenAI's interface with Sepal's extensions (docs/gateway.md). Whatever goes wrong is one sentence.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.conf import settings

from coordinator.chat.conversation import Turns

MANNER = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 256}
"""Lively, and short enough for volunteers' machines."""
LENS_TOP = 3
WORDLESS = "The model ended its answer without a word; ask again, or differently."
NO_GATEWAY = "This site has no gateway to this swarm; whoever runs it can set one up (docs/gateway.md)."
STATE_S = 3.0
"""For the gateway's word on itself: a page must not wait for a gateway that is gone."""
QUIET_S = 30.0
"""The gateway says something every ten seconds."""
WHOLE_S = 300.0
LONGEST_SENTENCE = 500


class Cannot(Exception):
    """Why there is no answer, as one sentence."""


@dataclass(frozen=True, slots=True)
class Served:
    """The model that the gateway answers for; `why_not` is empty where it can."""

    model: str
    prefix: str
    why_not: str


@dataclass(frozen=True, slots=True)
class Hop:
    peer_id: str
    blocks: str


@dataclass(frozen=True, slots=True)
class Report:
    route: tuple[Hop, ...] = ()
    tokens_per_second: float | None = None
    recoveries: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    before: int


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    report: Report


Event = Waiting | Text | Report


@dataclass(frozen=True, slots=True)
class LensRow:
    blocks: int
    peer_id: str
    guesses: tuple[tuple[str, float], ...] = field(default_factory=tuple)


async def served(url: str) -> Served:
    """Raises Cannot where no gateway is set up (an empty `url`), or none answers."""
    async with _connection(url, STATE_S) as client:
        document = _document(await client.get("/v1/models"))
    try:
        model = document["data"][0]
        own = model.get("sepal") or {}
        return Served(str(model["id"]), str(own.get("prefix") or ""), str(own.get("why_not") or ""))
    except (LookupError, TypeError, AttributeError) as error:
        raise Cannot("The gateway does not answer as one.") from error


async def answer(url: str, model: str, turns: Turns, address: str) -> Answer:
    """The whole answer. Raises Cannot."""
    text, report = [], Report()
    async for event in stream(url, model, turns, address):
        if isinstance(event, Text):
            text.append(event.text)
        elif isinstance(event, Report):
            report = event
    if not text:
        raise Cannot(WORDLESS)
    return Answer("".join(text), report)


async def stream(url: str, model: str, turns: Turns, address: str) -> AsyncIterator[Event]:
    """Events as they come; the last Report has the figures of the whole answer. Raises Cannot, also in the middle.

    `address` is the visitor's, so that the gateway can give each a fair share.
    """
    body = {**_asked(model, turns), **MANNER, "stream": True, "sepal": {"progress": True}}
    async with (
        _connection(url, QUIET_S, address) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        if response.status_code != 200:
            await response.aread()
            _document(response)
        ended = False
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                return
            if line.startswith("data: "):
                chunk = _chunk(line.removeprefix("data: "))
                for event in _events(chunk):
                    yield event
                ended = ended or _has_ended(chunk)
    if not ended:
        raise Cannot("The gateway broke off in the middle of the answer.")


async def lens(url: str, model: str, turns: Turns, address: str) -> list[LensRow]:
    """Raises Cannot."""
    async with _connection(url, WHOLE_S, address) as client:
        document = _document(await client.post("/v1/sepal/logit_lens", json={**_asked(model, turns), "top": LENS_TOP}))
    try:
        return [
            LensRow(
                int(row["blocks"]),
                str(row["peer"] or ""),
                tuple((str(guess["text"]), float(guess["probability"])) for guess in row["top"]),
            )
            for row in document["rows"]
        ]
    except (LookupError, TypeError, ValueError) as error:
        raise Cannot("The gateway does not answer as one.") from error


@asynccontextmanager
async def _connection(url: str, timeout_s: float, address: str = "") -> AsyncIterator[httpx.AsyncClient]:
    if not url:
        raise Cannot(NO_GATEWAY)
    headers = {"X-Forwarded-For": address} if address else {}
    if settings.SEPAL_GATEWAY_KEY:
        headers["Authorization"] = f"Bearer {settings.SEPAL_GATEWAY_KEY}"
    timeout = httpx.Timeout(timeout_s, connect=STATE_S)
    try:
        # Whatever proxy the environment names is not meant for the site's own gateway.
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, trust_env=False) as client:
            yield client
    except httpx.ReadTimeout as error:
        raise Cannot("The gateway fell silent.") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Cannot("The gateway to the swarm cannot be reached just now; try again in a minute.") from error


def _asked(model: str, turns: Turns) -> dict[str, Any]:
    return {"model": model, "messages": [turn.model_dump() for turn in turns]}


def _document(response: httpx.Response) -> dict[str, Any]:
    """The JSON of a good answer; Cannot with the gateway's own words for any other."""
    document = _chunk(response.text)
    if response.status_code != 200:
        raise Cannot("The gateway does not answer as one.")
    return document


def _chunk(text: str) -> dict[str, Any]:
    try:
        chunk = json.loads(text)
    except ValueError as error:
        raise Cannot("The gateway does not answer as one.") from error
    if not isinstance(chunk, dict):
        raise Cannot("The gateway does not answer as one.")
    refused = chunk.get("error")
    if refused is not None:
        raise Cannot(_sentence(refused))
    return chunk


def _sentence(error: Any) -> str:
    message = str(error.get("message") or "") if isinstance(error, dict) else ""
    if not message:
        return "The gateway refused, without a reason."
    message = message[:LONGEST_SENTENCE]
    if isinstance(error, dict) and error.get("code") == "swarm_incomplete":
        return f"The swarm cannot answer now: {message}."
    return f"{message[0].upper()}{message[1:]}."


def _events(chunk: dict[str, Any]) -> list[Event]:
    events: list[Event] = []
    own = chunk.get("sepal")
    if isinstance(own, dict) and isinstance(own.get("waiting_before"), int):
        events.append(Waiting(own["waiting_before"]))
    elif isinstance(own, dict):
        events.append(_report(own))
    for choice in chunk.get("choices") or ():
        text = (choice.get("delta") or {}).get("content") if isinstance(choice, dict) else None
        if isinstance(text, str) and text:
            events.append(Text(text))
    return events


def _has_ended(chunk: dict[str, Any]) -> bool:
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in chunk.get("choices") or ())


def _report(own: dict[str, Any]) -> Report:
    try:
        route = tuple(Hop(str(hop["peer"]), str(hop["blocks"])) for hop in own["route"])
        rate = own.get("tokens_per_second")
        return Report(route, None if rate is None else float(rate), int(own.get("recoveries") or 0))
    except (LookupError, TypeError, ValueError) as error:
        raise Cannot("The gateway does not answer as one.") from error
