"""The doors: a request is read, checked, given to an answer, and what comes back is sent on. Starlette knows the rest.

A stream's headers wait for the first token, so that what cannot be served is an HTTP error that SDKs understand, and not a
broken stream. Whoever leaves is noticed while they wait, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from blockserver.gateway import asked as asking
from blockserver.gateway import config, lens, refusals
from blockserver.gateway.answering import Answer, Begun, Ended, Event, Piece, Studio, Waiting
from blockserver.gateway.asked import Asked
from blockserver.gateway.callers import caller_of
from blockserver.gateway.documents import Envelope, line
from blockserver.gateway.refusals import Refusal
from blockserver.gateway.turns import NoRoom
from swarm.errors import MissingBlocks, SwarmError

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Gateway:
    studio: Studio
    keys: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    connected: Callable[[], bool] = lambda: True
    began: int = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/models/{name:path}", self.one_model),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.text, methods=["POST"]),
                Route("/v1/sepal/logit_lens", self.logit_lens, methods=["POST"]),
                Route("/livez", self.livez),
                Route("/readyz", self.readyz),
                Route("/metrics", self.metrics),
            ],
            exception_handlers={Refusal: _refused, HTTPException: _no_such_door, Exception: _failed},  # type: ignore[dict-item]
        )

    async def models(self, request: Request) -> Response:
        self._caller(request)
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        self._caller(request)
        self.studio.voice.check_name(request.path_params["name"])
        return JSONResponse(self._model())

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, asking.read_chat)

    async def text(self, request: Request) -> Response:
        return await self._answer(request, asking.read_text)

    async def logit_lens(self, request: Request) -> Response:
        caller = self._caller(request)
        wanted = asking.read_lens(await _body(request))
        voice = self.studio.voice
        voice.check_name(wanted.model)
        prompt = await voice.encode(wanted.prompt)
        if len(prompt) > lens.MAX_TOKENS:
            raise refusals.bad_request(
                f"a lens looks through at most {lens.MAX_TOKENS} tokens, and these are {len(prompt):,}", wanted.prompt.field
            )
        rows = await _unless_gone(request, self._look_through(caller, prompt, wanted.top))
        if rows is None:
            return Response(status_code=499)
        return JSONResponse({"model": voice.names[0], "tokens": len(prompt), "rows": [row.document() for row in rows]})

    async def livez(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """For people and load balancers: one line a check, 503 where one fails."""
        sight = self.studio.sight
        blocks = sight.sentence() or ("" if sight.looked_at is not None else "not looked at yet")
        checks = {"swarm": "" if self.connected() else "no connection to the swarm", "blocks": blocks}
        lines = [f"[-]{name} {fault}\n" if fault else f"[+]{name} ok\n" for name, fault in checks.items()]
        return PlainTextResponse("".join(lines), 503 if any(checks.values()) else 200)

    async def metrics(self, request: Request) -> Response:
        body, content_type = self.studio.metrics.page(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    def _model(self) -> dict[str, Any]:
        voice, sight = self.studio.voice, self.studio.sight
        return {
            "id": voice.names[0],
            "object": "model",
            "created": self.began,
            "owned_by": "swarm",
            "sepal": {
                "prefix": voice.model.prefix,
                "num_blocks": voice.model.facts.num_blocks,
                "context": voice.context,
                "missing_blocks": sorted(sight.missing_since),
                "why_not": sight.sentence() or None,
            },
        }

    def _caller(self, request: Request) -> str:
        address = request.client.host if request.client else ""
        return caller_of(request.headers, address, self.keys, self.proxies)

    async def _answer(self, request: Request, read: Callable[[bytes], Asked]) -> Response:
        caller = self._caller(request)
        wanted = read(await _body(request))
        voice = self.studio.voice
        voice.check_name(wanted.model)
        prompt = await voice.encode(wanted.prompt)
        voice.check_length(wanted.prompt, len(prompt), wanted.max_tokens)
        envelope = _envelope(wanted, voice.names[0])
        answer = Answer(self.studio, caller, wanted, prompt)
        if not wanted.stream:
            said = await _unless_gone(request, _whole(answer, envelope), answer.leave)
            return Response(status_code=499) if said is None else JSONResponse(said)
        first: Event | None = Waiting(0)
        if not wanted.progress:
            first = await _unless_gone(request, _begun(answer), answer.leave)
            if first is None:
                return Response(status_code=499)
        stream = _lines(answer, envelope, first, wanted.progress)
        return EventSourceResponse(stream, ping=config.PING_S, send_timeout=config.SEND_S, sep="\n")

    async def _look_through(self, caller: str, prompt: list[int], top: int) -> list[lens.Row]:
        try:
            async with self.studio.turns.turn(caller, within_s=self.studio.wait_s), asyncio.timeout(lens.LIMIT_S):
                return await lens.look_through(self.studio.voice, prompt, top)
        except NoRoom as error:
            raise (refusals.yours_wait if error.yours else refusals.full)(error.waiting) from error
        except MissingBlocks as error:
            self.studio.sight.met(error.blocks, time.time())
            raise refusals.swarm_incomplete(self.studio.sight.sentence(error.blocks)) from error
        except (SwarmError, TimeoutError) as error:
            log.warning("a lens failed: %s", error)
            raise refusals.servers_failed("the servers failed, and no others could take over") from error


async def _body(request: Request) -> bytes:
    """JSON only: what a stranger's web page may send without being asked for permission is not JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise refusals.bad_request("send JSON, with Content-Type: application/json", code="unsupported_media_type", status=415)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > config.MAX_BODY:
            raise refusals.bad_request(
                f"a request holds at most {config.MAX_BODY // 1024} KiB", code="request_too_large", status=413
            )
    return bytes(body)


def _envelope(wanted: Asked, model: str) -> Envelope:
    chat = wanted.prompt.messages is not None
    name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
    return Envelope(name, int(time.time()), model, chat, wanted.include_usage)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T], leave: Callable[[], None] = lambda: None) -> T | None:
    """The result, or None where the caller has left before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        leave()
        return None
    except asyncio.CancelledError:
        leave()
        raise
    finally:
        working.cancel()
        leaving.cancel()


async def _begun(answer: Answer) -> Event | None:
    while isinstance(event := await answer.next(), Waiting):
        pass
    return event


async def _whole(answer: Answer, envelope: Envelope) -> dict[str, Any]:
    text: list[str] = []
    while (event := await answer.next()) is not None:
        if isinstance(event, Piece):
            text.append(event.text)
        elif isinstance(event, Ended):
            return envelope.whole("".join(text), event.reason, event.usage, event.report)
    raise refusals.stopping()


async def _lines(answer: Answer, envelope: Envelope, first: Event | None, progress: bool) -> AsyncIterator[dict[str, str]]:
    """The stream's chunks; the last is `[DONE]`, or says what went wrong."""
    try:
        event = first
        while event is not None:
            for document in _documents(event, envelope, progress):
                yield {"data": line(document)}
            event = await answer.next()
        yield {"data": "[DONE]"}
    except Refusal as refusal:
        yield {"data": line(refusal.document())}
    finally:
        answer.leave()


def _documents(event: Event, envelope: Envelope, progress: bool) -> list[dict[str, Any]]:
    match event:
        case Waiting(before):
            return [envelope.waiting(before)] if progress else []
        case Begun(report):
            return [envelope.begin(report)]
        case Piece(text):
            return [envelope.piece(text)]
        case Ended(reason, usage, report):
            end = envelope.end(reason, report)
            return [end, envelope.usage(usage, report)] if envelope.include_usage else [end]


def _refused(request: Request, error: Refusal) -> Response:
    return JSONResponse(error.document(), error.status, error.headers())


def _no_such_door(request: Request, error: HTTPException) -> Response:
    refusal = refusals.bad_request(
        f"{request.method} {request.url.path}: {error.detail}", code="unknown_url", status=error.status_code
    )
    return JSONResponse(refusal.document(), error.status_code, dict(error.headers or {}))


def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse(refusals.our_fault().document(), 500)
