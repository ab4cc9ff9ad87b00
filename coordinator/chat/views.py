"""Doors of the chat page. Without scripts a form is sent and the whole page comes back; with them the answer streams in.

Nobody logs in here, so a foreign page that sends the form gains nothing but an answer that it cannot read; it is refused
all the same, as it would use up its visitors' share.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from coordinator import limits
from coordinator.chat import conversation, gateway, shown
from coordinator.chat.conversation import NotUnderstood, Said, Turn, Turns
from coordinator.chat.gateway import Cannot
from coordinator.places import Place, place_of

QUESTIONS_OF_AN_ADDRESS = limits.Limit("chat", 20)
"""A person reads the answer first."""
LENSES_OF_AN_ADDRESS = limits.Limit("lens", 6)
"""Each costs every server of a chain as much as an answer's beginning."""
TOO_BIG = "That is too long for this page; start again with less."


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
async def chat(request: HttpRequest, swarm: str = "") -> HttpResponse:
    place = place_of(request, swarm)
    if request.method != "POST":
        return await _page(request, place, {})
    try:
        form = _form(request)
        if form.get("what") == "lens":
            return await _lens(request, place, form)
        said = conversation.read(form.get("question", ""), form.get("history", ""))
        await _count(request, QUESTIONS_OF_AN_ADDRESS)
        return await _answer(request, place, said)
    except NotUnderstood as error:
        return await _page(request, place, {"complaint": str(error), "turns": _kept(request)}, 400)
    except limits.TooMany as error:
        return await _too_many(request, place, error)


@csrf_exempt
@require_POST
async def stream(request: HttpRequest, swarm: str = "") -> HttpResponseBase:
    """Lines of JSON: `{"note": …}`, `{"text": …}`, `{"report": …}`, and last `{"history": …}` or `{"error": …}`."""
    place = place_of(request, swarm)
    try:
        form = _form(request)
        said = conversation.read(form.get("question", ""), form.get("history", ""))
        await _count(request, QUESTIONS_OF_AN_ADDRESS)
        lines = _lines(place, said, limits.address_of(request))
    except (NotUnderstood, limits.TooMany) as error:
        lines = _one_line({"error": _sentence(error)})
    response = StreamingHttpResponse(lines, content_type="application/x-ndjson")
    response["Cache-Control"] = "no-store"
    # A proxy that collects the answer before it passes it on would make the page look dead.
    response["X-Accel-Buffering"] = "no"
    return response


async def _answer(request: HttpRequest, place: Place, said: Said) -> HttpResponse:
    page: dict[str, Any] = {"turns": said.before}
    try:
        served = await gateway.served(place.gateway_url)
        answer = await gateway.answer(place.gateway_url, served.model, said.turns, limits.address_of(request))
    except Cannot as error:
        return await _page(request, place, {**page, "question": said.question, "why_not": str(error)}, 503)
    turns = (*said.turns, Turn(role="assistant", content=answer.text))
    return await _page(request, place, {"turns": turns, "report": shown.report(answer.report, place.base), "served": served})


async def _lens(request: HttpRequest, place: Place, form: dict[str, str]) -> HttpResponse:
    """For the question in the box, or for the last one that was asked."""
    turns = conversation.read_history(form.get("history", ""))
    question = form.get("question", "").strip()
    if question:
        asked = conversation.read(question, form.get("history", "")).turns
    else:
        asked = turns[: max((at + 1 for at, turn in enumerate(turns) if turn.role == "user"), default=0)]
    if not asked:
        raise NotUnderstood("Write a question first; the lens then shows how its answer would begin.")
    await _count(request, LENSES_OF_AN_ADDRESS)
    page: dict[str, Any] = {"turns": turns, "question": question}
    try:
        served = await gateway.served(place.gateway_url)
        rows = await gateway.lens(place.gateway_url, served.model, asked, limits.address_of(request))
    except Cannot as error:
        return await _page(request, place, {**page, "why_not": str(error)}, 503)
    lens = {"question": asked[-1].content, "rows": [shown.row(row, place.base) for row in rows]}
    return await _page(request, place, {**page, "lens": lens, "served": served})


async def _lines(place: Place, said: Said, address: str) -> AsyncIterator[str]:
    text: list[str] = []
    try:
        served = await gateway.served(place.gateway_url)
        async for event in gateway.stream(place.gateway_url, served.model, said.turns, address):
            if isinstance(event, gateway.Text):
                text.append(event.text)
            yield _line(shown.event(event, place.base))
        if not text:
            raise Cannot(gateway.WORDLESS)
        turns = (*said.turns, Turn(role="assistant", content="".join(text)))
        yield _line({"history": conversation.write_history(turns)})
    except Cannot as error:
        yield _line({"error": str(error)})


async def _one_line(document: dict[str, Any]) -> AsyncIterator[str]:
    yield _line(document)


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _form(request: HttpRequest) -> dict[str, str]:
    """Raises NotUnderstood."""
    if _sent_from_elsewhere(request):
        raise NotUnderstood("This form was sent by another site; open the page itself.")
    try:
        return {name: str(value) for name, value in request.POST.items()}
    except RequestDataTooBig as error:
        raise NotUnderstood(TOO_BIG) from error


def _sent_from_elsewhere(request: HttpRequest) -> bool:
    fetched = request.headers.get("Sec-Fetch-Site", "")
    if fetched:
        return fetched not in ("same-origin", "none")
    origin = request.headers.get("Origin", "")
    return bool(origin) and origin not in (f"{request.scheme}://{request.get_host()}", settings.SEPAL_URL)


def _kept(request: HttpRequest) -> Turns:
    """What was said before, where the form can be read that far."""
    try:
        return conversation.read_history(_form(request).get("history", ""))
    except NotUnderstood:
        return ()


async def _count(request: HttpRequest, limit: limits.Limit) -> None:
    await sync_to_async(limits.count)(limit, limits.address_of(request))


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


async def _page(request: HttpRequest, place: Place, page: dict[str, Any], status: int = 200) -> HttpResponse:
    served = page.get("served")
    if served is None and "why_not" not in page:
        try:
            served = await gateway.served(place.gateway_url)
            page = {**page, "why_not": f"The swarm cannot answer now: {served.why_not}." if served.why_not else ""}
        except Cannot as error:
            page = {**page, "why_not": str(error)}
    turns: Turns = page.get("turns", ())
    page = {
        **page,
        "served": served,
        "history": conversation.write_history(turns),
        "longest": conversation.LONGEST_QUESTION,
    }
    context = {"page": page, "base": place.base}
    response = await sync_to_async(render)(request, "coordinator/chat.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response


async def _too_many(request: HttpRequest, place: Place, error: limits.TooMany) -> HttpResponse:
    context = {"page": {"words": str(error)}, "base": place.base}
    response = await sync_to_async(render)(request, "coordinator/too_many.html", context, status=429)
    response["Retry-After"] = str(error.retry_after_s)
    return response
