"""`sepal canary`: generates a few tokens through the swarm, over other servers than the last time where there are others,
and tells the site how that went. Never stops for a swarm or a site that is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blockserver.canary.answers import Expected, Tokens
from blockserver.client.chat import encode_question, load_tokenizer
from blockserver.client.discovery import RouteFinder
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from blockserver.client.session import Patience
from blockserver.model.facts import read_facts
from blockserver.serving.hint_client import CoordinatorDown, HintClient
from blockserver.serving.identity import read_signer
from swarm.dht.node import NodeConfig, make_identity, start_node
from swarm.errors import LocalError, MissingBlocks, RemoteError
from swarm.routing import Route
from swarm.wire.reports import CanaryReport, ReportRequest, ServerReport
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

FindRoute = Callable[[Span, Collection[str]], Awaitable[Route]]

RUN_LIMIT_S = 120.0
PATIENCE = Patience(attempts=2)
"""A client would look for other servers for a minute; what is asked here is whether it works now."""


@dataclass(frozen=True)
class CanaryConfig:
    """`answer`: the text that is right, as the model itself gives it; None: that of most runs."""

    model: Path
    initial_peers: tuple[str, ...]
    site: str
    key_path: Path
    prefix: str | None = None
    question: str = "The capital of France is"
    answer: str | None = None
    max_new_tokens: int = 4
    period_s: float = 300.0


@dataclass
class Varied:
    """A route finder that goes round the servers of the last run, where others hold their blocks."""

    find_route: FindRoute
    last: frozenset[str] = frozenset()

    async def __call__(self, span: Span, avoid: Collection[str]) -> Route:
        try:
            return await self.find_route(span, frozenset(avoid) | self.last)
        except MissingBlocks:
            # Not for all blocks; of those that are free to choose, a part at least.
            for peer_id in sorted(self.last):
                with contextlib.suppress(MissingBlocks):
                    return await self.find_route(span, frozenset(avoid) | {peer_id})
            return await self.find_route(span, avoid)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. `answer` None: it failed, and `fault` says why; `peers` are those of the route as far as there was one."""

    answer: Tokens | None
    peers: tuple[str, ...]
    seconds: float
    fault: str = ""


Generate = Callable[[], Awaitable[Outcome]]


@dataclass
class Canary:
    """One run after another, as whoever keeps time asks for them."""

    prefix: str
    peer_id: str
    generate: Generate
    expected: Expected
    site: HintClient
    in_words: Callable[[Tokens], str] = field(default=lambda tokens: " ".join(map(str, tokens)))

    async def run_once(self) -> CanaryReport | None:
        """What was told to the site; None where there is nothing to compare with yet."""
        outcome = await self.generate()
        report = self._judged(outcome)
        if report is None:
            log.info("answered %r; not enough answers yet to compare with", self.in_words(outcome.answer or ()))
            return None
        log.info("%s: %s", report.outcome, report.detail)
        failures = int(report.outcome != "expected")
        servers = [] if failures else [ServerReport(peer_id=peer, requests=1) for peer in dict.fromkeys(outcome.peers)]
        try:
            await self.site.report(ReportRequest(peer=self.peer_id, model=self.prefix, servers=servers, canary=report))
        except CoordinatorDown as error:
            log.warning("not told to the site: %s", error)
        return report

    def _judged(self, outcome: Outcome) -> CanaryReport | None:
        trusted_by = self.expected.trusted_by
        peers = list(dict.fromkeys(outcome.peers))
        if outcome.answer is None:
            fault = outcome.fault[:300]
            return CanaryReport(outcome="failed", trusted_by=trusted_by, servers=peers, seconds=outcome.seconds, detail=fault)
        verdict = self.expected.judge(outcome.answer)
        if verdict is None:
            return None
        words = f"answered {self.in_words(outcome.answer)!r}"[:300]
        return CanaryReport(outcome=verdict, trusted_by=trusted_by, servers=peers, seconds=outcome.seconds, detail=words)


async def generate(model: RemoteModel, prompt: list[int], tokens: int, varied: Varied) -> Outcome:
    """One run through the swarm, greedy."""
    begun = time.monotonic()
    answer: list[int] = []
    peers: tuple[str, ...] = ()
    try:
        async with asyncio.timeout(RUN_LIMIT_S), model.session(len(prompt) + tokens) as session:
            async for token in model.generate(prompt, Sampling(max_new_tokens=tokens), session):
                answer.append(token)
                peers = tuple(hop.peer_id for hop in session.route)
    except TimeoutError:
        return Outcome(None, peers, time.monotonic() - begun, f"no answer within {RUN_LIMIT_S:g} s")
    except RemoteError as error:
        return Outcome(None, peers, time.monotonic() - begun, str(error))
    varied.last = frozenset(peers)
    return Outcome(tuple(answer), peers, time.monotonic() - begun)


async def run_canary(config: CanaryConfig, stop: asyncio.Event, once: bool = False) -> bool:
    """Until `stop` is set, or one run with `once`; whether the last run's answer was the expected one."""
    make_identity(config.key_path)
    signer = read_signer(config.key_path)
    tokenizer = load_tokenizer(config.model)
    facts = read_facts(config.model)
    prefix = config.prefix or facts.prefix
    prompt = encode_question(tokenizer, config.question)
    configured = None if config.answer is None else _tokens(tokenizer, config.answer)
    # Of a configured answer just so many tokens are asked for.
    tokens = config.max_new_tokens if configured is None else len(configured)
    log.info("reports as peer %s: the site counts them where SEPAL_TRUSTED_REPORTERS names it", signer.peer_id)
    good = False
    async with contextlib.AsyncExitStack() as stack:
        node = await start_node(NodeConfig(initial_peers=config.initial_peers, client_mode=True))
        stack.push_async_callback(node.stop)
        varied = Varied(RouteFinder(node, prefix, facts.num_blocks))
        model = await stack.enter_async_context(
            RemoteModel.load(config.model, node.p2p, varied, prefix=prefix, patience=PATIENCE)
        )
        site = await stack.enter_async_context(HintClient(config.site, signer))

        async def ask() -> Outcome:
            return await generate(model, prompt, tokens, varied)

        canary = Canary(prefix, signer.peer_id, ask, Expected(configured), site, lambda ids: str(tokenizer.decode(ids)))
        while not stop.is_set():
            report = await _unless_stopped(canary.run_once(), stop)
            good = report is not None and report.outcome == "expected"
            if once:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), config.period_s)
    return good


async def _unless_stopped(run: Coroutine[Any, Any, CanaryReport | None], stop: asyncio.Event) -> CanaryReport | None:
    """A run may take minutes, and whoever stops the canary waits half of one."""
    running, stopped = asyncio.ensure_future(run), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
        return running.result() if running.done() else None
    finally:
        running.cancel()
        stopped.cancel()


def _tokens(tokenizer: Any, text: str) -> Tokens:
    tokens = tuple(tokenizer.encode(text, add_special_tokens=False))
    if not tokens:
        raise LocalError("--answer is empty: give the text that is expected, or leave the flag out")
    return tokens
