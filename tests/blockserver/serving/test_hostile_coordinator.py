"""Whatever a coordinator answers: nothing of it ends a server, holds it up, or sends it where it cannot load."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gzip
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from blockserver.serving.advice import BY_COORDINATOR, BY_ITSELF
from blockserver.serving.hint_client import BUSY_RETRY_S, MOST_BYTES, CoordinatorDown, HintClient
from blockserver.serving.leasing import Leases
from blockserver.serving.polling import LEAST_S, MOST_S, next_question_after
from blockserver.serving.told import MOST_MOVES, WITHIN_S, ToldMoves
from swarm.wire.hints import LeaseDocument
from swarm.wire.spans import Span
from tests.blockserver.coordinators import NONCE, STAY, Coordinator, coordinator, move
from tests.blockserver.living import config, eventually, serving
from tests.blockserver.serving.test_advice import Situation
from tests.blockserver.serving.test_silence import LATER, unseen
from tests.coordinator.signing import signer
from tests.loopback import nodes
from tests.swarms import peer_id

HERE = Span(0, 12)
SIGNED = signer("me")


async def at_once(seconds: float) -> None:
    """In the place of sleeping."""


# -------------------------------------------------------------------------------------------------------- what it may say

LEASE = {"plan_version": 3, "expected_gain": 0.1, "cost_s": 60.0, "deadline_s": 900.0, "from_model": "tiny-hf"}
MOVE = move(12, 24, "tiny-hf")
HONEST = (
    STAY,
    {**MOVE, "lease": {**MOVE["lease"], **LEASE, "if_unchanged": {"start": 0, "end": 12}}, "span": {"start": 12, "end": 24}},
    LATER,
    unseen("blind"),
    {"outcome": "ok", "reason": "…"},
)
SHARP: tuple[Any, ...] = (
    -1, 0, 12, 13, 30, 31, 2048, 2049, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan"), float("inf"), "", "tiny-hf", "move",
    "../../x", "a b", "a\nb", "\x00", "é" * 40, "x" * 200, "\ud800", "y" * MOST_BYTES, {"start": 24, "end": 12}, [[[[]]]],
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(SHARP),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """An honest answer, of which a few fields say something else."""
    answer = copy.deepcopy(draw(st.sampled_from(HONEST)))
    lease = answer.get("lease")
    for _ in range(draw(st.integers(0, 3))):
        holder: dict[str, Any] = draw(st.sampled_from([answer, lease, lease])) if isinstance(lease, dict) else answer
        field = draw(st.sampled_from(sorted(holder)))
        holder[field] = draw(st.sampled_from(SHARP) | st.integers(-2, 40) | ANYTHING)
    return json.dumps(answer).encode()


SAID = answers() | ANYTHING.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=50)


class Same(dict[str, Any]):
    """The same answer to every question, but for the nonce, without which nothing would be asked."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self.said = said

    def get(self, path: str, default: object = None) -> Any:
        return default if path == NONCE else self.said


def test_no_answer_ends_a_server_or_sends_it_where_it_cannot_load() -> None:
    with coordinator() as told, asyncio.Runner() as runner:
        hints = HintClient(told.url, SIGNED)

        @settings(max_examples=200, deadline=None)
        @given(SAID)
        def check(said: bytes) -> None:
            runner.run(one_round(told, hints, said))

        check()
        runner.run(hints.__aexit__(None, None, None))


async def one_round(told: Coordinator, hints: HintClient, said: bytes) -> None:
    me = Situation(hints)
    told.answers = Same(said)

    async def ask_no_more(seconds: float) -> None:
        told.answers = {"/api/v1/hint": STAY}

    me.adviser.sleep = ask_no_more
    moving = await me.adviser.reconsider("tiny-hf", HERE)
    assert LEAST_S <= next_question_after(30.0, me.adviser.retry_after_s) <= MOST_S
    arriving = await me.adviser.arrive()
    told.answers = Same(said)
    leases = Leases(hints, SIGNED.peer_id, at_once)
    for decision in filter(None, (moving, arriving)):
        span = decision.placement.span
        assert decision.prefix == "tiny-hf" and len(span) <= 12 and Span(0, 30).covers(span)
        assert (decision.decided_by == BY_COORDINATOR) is (decision.lease is not None)
        assert "\n" not in str(decision)
        assert isinstance(await leases.take(decision.lease, HERE), bool)
        assert isinstance(await leases.report(decision.lease, 0.5), bool)
    assert arriving is not None


@pytest.mark.parametrize(
    ("start", "end", "word"), [(24, 36, "no-such-blocks"), (0, 13, "memory"), (12, 12, None), (24, 12, None), (0, 2049, None)]
)
async def test_of_blocks_that_it_cannot_load_it_says_so_and_an_arrival_decides_by_itself(
    start: int, end: int, word: str | None
) -> None:
    with coordinator() as told:
        told.answers["/api/v1/hint"] = move(start, end)
        async with HintClient(told.url) as hints:
            me = Situation(hints)
            assert await me.decides() is None
            arrived = await me.adviser.arrive()
    assert (arrived.decided_by, arrived.lease) == (BY_ITSELF, None)
    declined = [body for path, body in told.asked if path == "/api/v1/lease/lease-1/decline"]
    assert [body["reason"].split(":")[0] for body in declined] == ([word, word] if word else [])
    assert all(body["not_again_s"] > 0 for body in declined)


# ------------------------------------------------------------------------------------------------------ how it may say it

Speaks = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def speaking(speaks: Speaks) -> AsyncIterator[str]:
    """A server that reads the head of a request and then says what it wants, for as long as it wants."""
    under_way: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await speaks(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in under_way:
            task.cancel()


def says(*parts: bytes, again: bytes = b"", each_s: float = 0.0) -> Speaks:
    """`again` is said until nobody listens."""

    async def speaks(writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()
        while again:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(each_s)

    return speaks


async def waits(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def head(status: str = "200 OK", *fields: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode()


STAYING = json.dumps(STAY).encode()
CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
BOMB = gzip.compress(STAYING + b" " * 30_000_000)

RUDE: dict[str, Speaks] = {
    "hangs up": says(),
    "says nothing": waits,
    "is no web server": says(b"SSH-2.0-x\r\n" * 3),
    "drips its answer": says(head("200 OK", "Content-Length: 9999"), again=b" ", each_s=0.02),
    "drips its header": says(b"HTTP/1.1 200 OK\r\n", again=b"X: y\r\n", each_s=0.02),
    "has no end of headers": says(b"HTTP/1.1 200 OK\r\n", again=b"X: " + b"y" * 9_000 + b"\r\n"),
    "has no end of promises": says(again=head("100 Continue")),
    "has no end": says(head("200 OK", "Transfer-Encoding: chunked"), again=CHUNK),
    "has no end, and says so": says(head("200 OK", f"Content-Length: {10**18}"), again=b" " * 65_536),
    "is refused, without end": says(head("503 Busy", "Transfer-Encoding: chunked"), again=CHUNK),
    "unpacks to more": says(head("200 OK", "Content-Encoding: gzip", f"Content-Length: {len(BOMB)}"), BOMB),
    "sends on": says(head("307 Elsewhere", "Location: http://127.0.0.1:1/", "Content-Length: 0")),
    "sends on to nowhere": says(head("302 Elsewhere", "Location: http://[", "Content-Length: 0")),
    "sends on to a file": says(head("301 Elsewhere", "Location: file:///dev/zero", "Content-Length: 0")),
    "is empty": says(head("204 No Content")),
    "changes protocol": says(head("101 Switching Protocols", "Upgrade: x", "Connection: Upgrade"), again=b"x"),
    "promises more than it says": says(head("200 OK", f"Content-Length: {len(STAYING) + 1}"), STAYING),
    "nests": says(head("200 OK", "Content-Length: 60000"), b"[" * 60_000),
}


IN_TIME = ("has no end", "has no end, and says so", "is refused, without end")
"""That these are too long is known before they are too late."""


@pytest.mark.parametrize("how", RUDE)
async def test_however_it_answers_that_is_no_answer_and_the_server_goes_on(how: str) -> None:
    async with speaking(RUDE[how]) as url, HintClient(url, timeout_s=30.0 if how in IN_TIME else 0.3) as hints:
        me = Situation(hints)
        with pytest.raises(CoordinatorDown, match="something that is no hint" if how in IN_TIME else None):
            await hints.ask(me.adviser._question(me.adviser.candidates[0], HERE, 0))
        assert await me.decides() is None
        assert (await me.adviser.arrive()).decided_by == BY_ITSELF


async def test_a_quick_answer_that_ends_is_taken_and_its_cookies_are_not() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        fields = (f"Content-Length: {len(STAYING)}", "Set-Cookie: a=b; Path=/", "Connection: close")
        writer.write(head("200 OK", *fields) + STAYING)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, HintClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as hints:
        me = Situation(hints)
        assert await me.decides() is None and await me.decides() is None
        assert me.adviser.retry_after_s == STAY["retry_after_s"]
    assert len(heads) == 2 and not any(b"cookie" in text.lower() for text in heads)
    assert all(b"accept-encoding: identity" in text.lower() for text in heads)


# -------------------------------------------------------------------------------------------------------- when it is busy


@pytest.mark.parametrize(
    ("status", "said", "wait_s"),
    [
        ("503 Busy", "3", 3.0),
        ("429 Slower", "7", 7.0),
        ("429 Slower", "7.5", BUSY_RETRY_S),
        ("503 Busy", "Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("503 Busy", "-5", 30.0),
        ("503 Busy", "nan", 30.0),
        ("503 Busy", "1e300", 30.0),
        ("503 Busy", "9999", MOST_S),
        ("500 Broken", "3", 30.0),
    ],
)
async def test_a_busy_coordinator_says_when_to_ask_again(status: str, said: str, wait_s: float) -> None:
    async with speaking(says(head(status, f"Retry-After: {said}", "Content-Length: 0"))) as url, HintClient(url) as hints:
        me = Situation(hints)
        assert await me.decides() is None
        assert next_question_after(30.0, me.adviser.retry_after_s) == wait_s


OFFER = LeaseDocument.model_validate({**MOVE["lease"]})


@pytest.mark.parametrize(("retry_after", "waited"), [("", 2.0), ("5", 5.0), ("600", 15.0)])
async def test_an_accept_whose_answer_was_lost_is_sent_once_more(retry_after: str, waited: float) -> None:
    """The coordinator may have taken it: then it would wait for a server that stays where it is."""
    accepted = json.dumps({"outcome": "ok", "reason": "…"}).encode()
    left: list[bytes] = [
        head("503 Busy", *([f"Retry-After: {retry_after}"] if retry_after else []), "Content-Length: 0"),
        head("200 OK", f"Content-Length: {len(accepted)}") + accepted,
    ]

    async def speaks(writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0))
        await writer.drain()

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with speaking(speaks) as url, HintClient(url) as hints:
        assert await Leases(hints, peer_id("me"), sleep).take(OFFER, HERE) is True
    assert slept == [waited] and left == []


async def test_and_not_for_ever() -> None:
    with coordinator() as told:
        async with HintClient(told.url) as hints:
            assert await Leases(hints, peer_id("me"), at_once).take(OFFER, HERE) is False
            told.answers["/api/v1/lease/lease-1/accept"] = {"outcome": "stale", "reason": "…"}
            assert await Leases(hints, peer_id("me"), at_once).take(OFFER, HERE) is False
    assert len(told.asked) == 3, "a word is a word, and is not asked for again"


# ------------------------------------------------------------------------------------------------- when it never has enough


class Chase(dict[str, Any]):
    """Wherever the server is, the hole is elsewhere."""

    def __init__(self, told: Coordinator) -> None:
        super().__init__()
        self.told = told

    def get(self, path: str, default: object = None) -> Any:
        if path.endswith("/hint"):
            here = self.told.asked[-1][1]["current"]
            return move(0, 2) if here is None or here["start"] else move(3, 5)
        return default if path == NONCE else {"outcome": "ok", "reason": "…"}


async def test_no_coordinator_moves_a_server_without_end(
    tiny: tuple[Path, PreTrainedModel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with coordinator() as told:
        told.answers = Chase(told)

        def said(step: str) -> list[dict[str, Any]]:
            return [body for path, body in told.asked if path.endswith(f"/{step}")]

        async with nodes(1) as (boot,), serving(await config(boot, tiny[0], num_blocks=2, coordinator=told.url)):
            await eventually(lambda: len(said("decline")) >= 3)
            assert len(said("accept")) == 1 + MOST_MOVES, "the arrival, and so many moves"
    declined = said("decline")[0]
    assert declined["reason"].startswith(f"too-soon: moved {MOST_MOVES} times within 60 minutes by the coordinator's word")
    assert WITHIN_S / 2 < declined["not_again_s"] <= WITHIN_S
    assert caplog.text.count("ONLINE with") == 1 + MOST_MOVES and "declining the lease" in caplog.text


@given(st.lists(st.floats(0.0, WITHIN_S), max_size=40))
def test_within_any_hour_it_is_moved_so_often_and_a_rest_ends(waits: list[float]) -> None:
    told, now, moved = ToldMoves(), 0.0, [-1e9] * MOST_MOVES
    for wait in waits:
        now += wait
        rest_s = told.rest_s(now)
        assert (rest_s > 0.0) is (now - moved[-MOST_MOVES] < WITHIN_S)
        if rest_s > 0.0:
            now += rest_s + 1e-6
        told.note(now)
        moved.append(now)
