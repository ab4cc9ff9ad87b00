"""The life of a server: advise, load, announce, serve, move where a hole needs it, leave in order.

JOINING is announced before loading and ONLINE after it; a move is accepted by the coordinator before anything is unloaded;
OFFLINE is announced at the end, before sessions are let run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from dataclasses import dataclass
from importlib.metadata import version

import torch

from blockserver.advice import BY_OPERATOR, Adviser, Decision
from blockserver.announce import Announcer
from blockserver.blocks import load_span, require_span
from blockserver.capacity import choose_num_blocks
from blockserver.config import ServeConfig
from blockserver.engine import Engine
from blockserver.facts import ModelFacts, read_facts
from blockserver.handler import TransformerConnectionHandler
from blockserver.hint_client import CoordinatorDown, HintClient
from blockserver.reachability import ReachabilityProtocol
from blockserver.ready import write_ready_file
from blockserver.throughput import Throughput, measure
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.dht.reading import read_blocks
from swarm.errors import LocalError
from swarm.placement import Placement
from swarm.snapshot import Model, assemble
from swarm.wire.hints import LeaseDocument, ReasonCode
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

VERSION = f"sepal-{version('sepal')}"
PROGRESS_PERIOD_S = 10.0
"""A lease being loaded lapses after three minutes without a word."""
JITTER = 0.2
"""Share by which the time between two questions varies, so that servers started together do not ask together."""


async def serve(config: ServeConfig, stop: asyncio.Event) -> None:
    """Serves until `stop` is set. Raises LocalError or RemoteError where it cannot begin."""
    facts = read_facts(config.model)
    prefix = config.prefix or facts.prefix
    dtype = facts.dtype if config.dtype == "auto" else getattr(torch, config.dtype)
    num_blocks = choose_num_blocks(config.num_blocks, facts, dtype, config.cache_tokens)
    fixed = _checked_fixed_span(config.block_indices, facts)
    require_span(config.model, fixed or facts.whole)
    log.info(
        "%s: %d blocks of %.1f MB; this server takes %d of them, in %s, with a cache of %d tokens",
        prefix, facts.num_blocks, facts.bytes_per_block(dtype) / 1e6,
        len(fixed) if fixed else num_blocks, str(dtype).removeprefix("torch."), config.cache_tokens,
    )  # fmt: skip
    node = await start_node(
        NodeConfig(
            initial_peers=config.initial_peers,
            listen=config.listen,
            announce=config.announce,
            identity_path=config.identity_path,
            port_mapping=config.port_mapping,
            relay=config.relay,
        )
    )
    log.info("peer %s listens on %s", node.peer_id, ", ".join(await node.addresses()))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(node.stop)
        hints = await stack.enter_async_context(HintClient(config.coordinator)) if config.coordinator else None
        handler = TransformerConnectionHandler(node.p2p, prefix, None, version=VERSION, dht_client_mode=False)
        await handler.start()
        reachability = ReachabilityProtocol(node.p2p)
        await reachability.start()
        server = BlockServer(config, facts, prefix, dtype, num_blocks, fixed, node, handler, hints)
        await server.live(stop)


@dataclass
class BlockServer:
    """One server in one swarm, on a node that has joined it."""

    config: ServeConfig
    facts: ModelFacts
    prefix: str
    dtype: torch.dtype
    num_blocks: int
    fixed: Span | None
    node: Node
    handler: TransformerConnectionHandler
    hints: HintClient | None

    def __post_init__(self) -> None:
        self._throughput: Throughput | None = None
        self._serving: Span | None = None
        model = ModelRecord(self.facts.num_blocks, None)
        self._announcer = Announcer(self.node, self.prefix, model, self._describe, self.config.update_period_s)
        self._adviser = Adviser(
            peer_id=self.node.peer_id,
            prefix=self.prefix,
            num_blocks=self.num_blocks,
            view=self._view,
            hints=self.hints,
            fallback_after_s=self.config.fallback_after_s,
            confirm_s=self.config.confirm_s,
        )

    async def live(self, stop: asyncio.Event) -> None:
        keeps_saying: asyncio.Task[None] | None = None
        try:
            await self._settle(await self._arrive())
            keeps_saying = asyncio.create_task(self._announcer.keep_saying())
            while not await _within(stop, self.config.hint_interval_s * random.uniform(1 - JITTER, 1 + JITTER)):  # noqa: S311
                if keeps_saying.done():
                    keeps_saying.result()
                await self._reconsider()
        finally:
            if keeps_saying is not None:
                keeps_saying.cancel()
            await self._leave()

    async def _arrive(self) -> Decision:
        if self.fixed is not None:
            placement = Placement(self.fixed, ReasonCode.NOTHING_NEEDED, "set by --block-indices")
            return Decision(placement, BY_OPERATOR)
        return await self._adviser.arrive()

    async def _reconsider(self) -> None:
        if self.fixed is not None or self._serving is None:
            return
        decision = await self._adviser.reconsider(self._serving, self.handler.sessions_active)
        if decision is not None and decision.placement.span != self._serving:
            await self._settle(decision)

    async def _settle(self, decision: Decision) -> None:
        """Takes the lease, if there is one, and only then unloads; loads; serves."""
        if not await self._take(decision.lease):
            if self._serving is not None:
                return
            decision = await self._adviser.arrive(alone=True)
        span = decision.placement.span
        left = f" instead of {self._serving.in_words()}" if self._serving else ""
        log.info("serving %s%s", decision, left)
        self.handler.set_engine(None)
        self._serving = span
        await self._announcer.say(ServerState.JOINING, span)
        started = time.monotonic()
        engine = await self._load(span, decision.lease)
        self._throughput = await measure(engine)
        self.handler.set_engine(engine)
        await self._announcer.say(ServerState.ONLINE, span)
        log.info("ONLINE with %s after %.1f s; %s", span.in_words(), time.monotonic() - started, self._throughput)
        self._write_ready_file(decision)

    async def _take(self, lease: LeaseDocument | None) -> bool:
        if lease is None or self.hints is None:
            return True
        try:
            reply = await self.hints.accept(lease, self.node.peer_id)
        except CoordinatorDown as error:
            log.warning("the lease could not be taken (%s); not moving without it", error)
            return False
        if reply.outcome == "stale":
            log.info("the lease is stale: %s", reply.reason)
        return reply.outcome == "ok"

    async def _load(self, span: Span, lease: LeaseDocument | None) -> Engine:
        reports = asyncio.create_task(self._report_loading(lease)) if lease else None
        try:
            module = await asyncio.to_thread(load_span, self.config.model, span, self.dtype)
        finally:
            if reports is not None:
                reports.cancel()
        return Engine(module, self.config.cache_tokens)

    async def _report_loading(self, lease: LeaseDocument) -> None:
        """Keeps the lease open. A coordinator that is gone meanwhile changes nothing: what was accepted is completed."""
        assert self.hints is not None
        while True:
            with contextlib.suppress(CoordinatorDown):
                await self.hints.report_progress(lease, self.node.peer_id, 0.0)
            await asyncio.sleep(PROGRESS_PERIOD_S)

    async def _leave(self) -> None:
        """OFFLINE first, so that no new client comes; then the open sessions get their time."""
        if self._serving is not None:
            log.info("leaving: announcing OFFLINE, then waiting for %d sessions", self.handler.sessions_active)
            await self._announcer.say(ServerState.OFFLINE, self._serving)
        await self.handler.stop(self.config.drain_s)
        self.handler.set_engine(None)

    async def _view(self) -> Model:
        """The model as this server sees it in the DHT, announcements believed."""
        readings = await read_blocks(self.node, {self.prefix: self.facts.num_blocks})
        record = ModelRecord(self.facts.num_blocks, None)
        return assemble("", time.time(), {self.prefix: record}, readings, visits=None).models[0]

    def _describe(self) -> ServerRecord:
        measured = self._throughput
        return ServerRecord(
            state=ServerState.JOINING,
            throughput=measured.announced(len(self._serving), self.config.relay) if measured and self._serving else None,
            public_name=self.config.public_name,
            version=VERSION,
            network_rps=measured.network_rps if measured else None,
            forward_rps=measured.forward_rps if measured else None,
            inference_rps=measured.inference_rps if measured else None,
            torch_dtype=str(self.dtype).removeprefix("torch."),
            quant_type="none",
            using_relay=False,
            cache_tokens_left=self.handler.cache_tokens_left,
        )

    def _write_ready_file(self, decision: Decision) -> None:
        span = decision.placement.span
        write_ready_file(
            self.config.ready_file,
            {"peer_id": self.node.peer_id, "pid": os.getpid(), "span": [span.start, span.end], "reason": str(decision)},
        )


def _checked_fixed_span(span: Span | None, facts: ModelFacts) -> Span | None:
    if span is not None and not facts.whole.covers(span):
        raise LocalError(f"--block-indices {span}: {facts.folder.name} has blocks 0 to {facts.num_blocks - 1}")
    return span


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event came within that time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
