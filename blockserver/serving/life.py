"""The life of a server: advise, load, check, announce, serve, move where a hole needs it, leave in order.

JOINING is announced before loading; ONLINE only after the blocks answered a request of this server's own and others could
dial it; a move is accepted by the coordinator before anything is unloaded; OFFLINE is announced at the end, before sessions
are let run out. Losing the coordinator, the monitor, bootstrap peers or p2pd ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from blockserver.compute.engine import Engine
from blockserver.config import ServeConfig
from blockserver.model.blocks import SpanModule
from blockserver.model.facts import ModelFacts
from blockserver.ready import write_ready_file
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.serving import loading
from blockserver.serving.advice import BY_OPERATOR, Adviser, Decision
from blockserver.serving.announce import Announcer
from blockserver.serving.condition import Condition
from blockserver.serving.conduct import Situation, objection
from blockserver.serving.hint_client import HintClient
from blockserver.serving.leasing import Leases
from blockserver.serving.neighbours import Ways
from blockserver.serving.presence import Presence
from blockserver.serving.rates import Rates
from blockserver.serving.reachability_check import wait_until_reachable
from blockserver.serving.selfcheck import check_own_blocks
from blockserver.serving.systemd import Systemd
from swarm.dht.node import Node, NodeConfig
from swarm.dht.reading import read_blocks
from swarm.errors import RemoteError, Unreachable
from swarm.placement import Pace, Placement
from swarm.snapshot import Model, Server, assemble
from swarm.wire.hints import LeaseDocument, ReasonCode
from swarm.wire.records import ModelRecord, ServerRecord, ServerState
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

PROGRESS_PERIOD_S = 10.0
"""A lease being loaded lapses after three minutes without a word."""
JITTER = 0.2
"""Share by which the time between two questions varies, so that servers started together do not ask together."""
OFFLINE_TIMEOUT_S = 5.0
"""A DHT that does not take the good-bye in time learns of it when the records run out."""
STATUS_PERIOD_S = 10.0

_STATES = {ServerState.JOINING: "joining", ServerState.ONLINE: "online", ServerState.OFFLINE: "leaving"}


@dataclass(frozen=True)
class Plan:
    """`num_blocks` fit here; `fixed` is the operator's choice of them, if there is one."""

    facts: ModelFacts
    prefix: str
    dtype: torch.dtype
    num_blocks: int
    fixed: Span | None

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


class BlockServer:
    """One server in one swarm, on a node that has joined it."""

    def __init__(
        self,
        config: ServeConfig,
        plan: Plan,
        node_config: NodeConfig,
        node: Node,
        hints: HintClient | None,
        systemd: Systemd,
        version: str,
    ) -> None:
        self.config, self.plan, self._systemd, self._version = config, plan, systemd, version
        self._leases = Leases(hints, node.peer_id)
        self._rates = Rates(config, plan.prefix)
        self._serving: Span | None = None
        self._seen: dict[str, dict[str, Server]] = {}
        self._module: SpanModule | None = None
        self._settled_at = time.monotonic()
        self._loaded: tuple[int, int] | None = None
        self._using_relay: bool | None = None
        self._failed: set[Span] = set()
        self._ways = Ways(self._view)
        self._moves = 0
        record = ModelRecord(plan.facts.num_blocks, None)
        announcer = Announcer(node, plan.prefix, record, self._describe, config.update_period_s)
        self.presence = Presence(node_config, node, announcer, self._make_handler, config.alive_interval_s)
        self._adviser = Adviser(
            peer_id=node.peer_id,
            prefix=plan.prefix,
            num_blocks=plan.num_blocks,
            view=self._view,
            hints=hints,
            fallback_after_s=config.fallback_after_s,
            confirm_s=config.confirm_s,
            pace=self._pace,
        )

    # ------------------------------------------------------------------------------------------------ from start to end

    async def live(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, whatever is under way; then it leaves in order, as it does after an error."""
        tasks = [asyncio.create_task(work) for work in (self._settle_and_reconsider(), stop.wait())]
        beside = [
            asyncio.create_task(work)
            for work in (self._announcer.keep_saying(), self.presence.keep(), self._tell_systemd(), self._keep_measuring_ways())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
        finally:
            self._systemd.stopping()
            for task in (*tasks, *beside):
                task.cancel()
            await asyncio.wait((*tasks, *beside), timeout=OFFLINE_TIMEOUT_S)
            await self._leave()

    async def _settle_and_reconsider(self) -> None:
        await self._settle(await self._arrive())
        while True:
            await asyncio.sleep(self.config.hint_interval_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311
            await self._reconsider()

    async def _arrive(self) -> Decision:
        if self.plan.fixed is not None:
            placement = Placement(self.plan.fixed, ReasonCode.NOTHING_NEEDED, "set by --block-indices")
            return Decision(placement, BY_OPERATOR)
        return await self._adviser.arrive()

    async def _reconsider(self) -> None:
        assert self._serving is not None
        if self.presence.down:
            return
        try:
            if self._rates.network_is_due:
                await self._measure_network()
            if self.plan.fixed is not None:
                return
            decision = await self._adviser.reconsider(self._serving, self.presence.handler.sessions_active)
        except RemoteError as error:
            log.warning("the swarm could not be read (%s); staying", error)
            return
        if decision is None or await self._declined(decision):
            return
        if decision.placement.span != self._serving:
            await self._settle(decision)
        elif decision.lease is not None:
            log.info("already serving %s", decision)
            await self._leases.take(decision.lease)

    async def _leave(self) -> None:
        """OFFLINE first, so that no new client comes; then the open sessions get their time."""
        if self._announcer.said is not None and self._serving is not None:
            log.info("leaving: announcing OFFLINE, then waiting for %d sessions", self.presence.handler.sessions_active)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._announcer.say(ServerState.OFFLINE, self._serving), OFFLINE_TIMEOUT_S)
        await self.presence.drain(self.config.drain_s)

    # ---------------------------------------------------------------------------------------------------- to other blocks

    async def _settle(self, decision: Decision) -> None:
        """Takes the lease, if there is one, and only then unloads; loads; serves. Goes back where that fails."""
        if not await self._leases.take(decision.lease):
            if self._serving is not None:
                return
            decision = await self._adviser.arrive(alone=True)
        before, span = self._serving, decision.placement.span
        log.info("serving %s%s", decision, f" instead of {before.in_words()}" if before else "")
        try:
            await self._serve(span, decision.lease)
        # Door: loading fails in as many ways as there are libraries, memory above all; what was served before can still be.
        except Exception as error:
            if before is None:
                raise
            log.error("%s could not be served (%s); going back to %s", span.in_words(), error, before.in_words())
            self._failed.add(span)
            await self._leases.decline(decision.lease, f"failed: {error}")
            await self._serve(before, None)
            return
        if before is not None:
            self._moves += 1
        self._write_ready_file(decision)

    async def _serve(self, span: Span, lease: LeaseDocument | None) -> None:
        """Loads, checks and announces `span`; when it returns the server is ONLINE with it."""
        started = time.monotonic()
        self.presence.set_engine(None)
        self._serving = span
        await self._announcer.say(ServerState.JOINING, span)
        engine = Engine(await self._load(span, lease), self.config.cache_tokens)
        self._module = engine.module
        self.presence.set_engine(engine)
        try:
            await check_own_blocks(self.presence.handler, engine, self.plan.prefix)
            await self._rates.compute(engine)
        except BaseException:
            self.presence.set_engine(None)
            raise
        if self._rates.network_is_due:
            await self._measure_network()
        await self._check_reachability()
        await self._ways.measure(self.presence.node, span)
        await self._announcer.say(ServerState.ONLINE, span)
        self._settled_at = time.monotonic()
        log.info("ONLINE with %s after %.1f s; %s", span.in_words(), time.monotonic() - started, self._rates.measured)
        self._systemd.ready(self.condition().in_words())

    async def _load(self, span: Span, lease: LeaseDocument | None) -> SpanModule:
        reports = asyncio.create_task(self._report_loading(lease))
        try:
            reuse, self._module = self._module, None
            return await loading.load(self.config, self.plan.facts, span, self.plan.dtype, self._note_progress, reuse)
        finally:
            reports.cancel()
            self._loaded = None

    def _note_progress(self, done: int, total: int, seconds: float) -> None:
        self._loaded = (done, total)

    async def _report_loading(self, lease: LeaseDocument | None) -> None:
        while True:
            await self._leases.report(lease, self.condition().loading or 0.0)
            await asyncio.sleep(PROGRESS_PERIOD_S)
            log.info(self.condition().in_words())

    async def _check_reachability(self) -> None:
        """Once in a life: a move changes nothing about it."""
        if not self.config.check_reachability or self._using_relay is not None:
            return
        verdict = await wait_until_reachable(
            self.presence.node, self.config.coordinator, relay=self.config.relay, within_s=self.config.reachable_within_s
        )
        self._using_relay = verdict.direct is False
        way = {True: "directly", False: "through a relay", None: "as far as anyone knows"}[verdict.direct]
        log.info("reachable %s: %s", way, verdict.in_words())

    @property
    def _bytes_per_token(self) -> int:
        return self.plan.facts.hidden_size * self.plan.dtype.itemsize

    def _pace(self) -> Pace | None:
        return self._rates.pace(self.plan.dtype_name, str(loading.device_of(self.config)), self._bytes_per_token)

    async def _measure_network(self) -> None:
        """Never stops a server: without a figure only what it computes is announced."""
        try:
            await self._rates.network(self.presence.node, await self._view(), self._bytes_per_token)
        except RemoteError as error:
            log.info("the network could not be measured: %s", error)

    async def _keep_measuring_ways(self) -> None:
        """Runs until cancelled; what is found goes out with the next announcement."""
        while True:
            await asyncio.sleep(self.config.update_period_s)
            if self._serving is not None and not self.presence.down:
                await self._ways.measure(self.presence.node, self._serving)

    # ------------------------------------------------------------------------------------------------------------- leases

    async def _declined(self, decision: Decision) -> bool:
        """Whether this server does not do what it was told, or what it found itself. A lease is declined with the reason."""
        span, lease = decision.placement.span, decision.lease
        if span in self._failed:
            await self._leases.decline(lease, f"failed: {span.in_words()} could not be served here before")
            return True
        reason = objection(lease, self._situation(span)) if lease and span != self._serving else None
        if reason is not None:
            await self._leases.decline(lease, reason)
        return reason is not None

    def _situation(self, wanted: Span) -> Situation:
        fetch = loading.bytes_to_fetch(self.config, wanted)
        return Situation(
            serving=self._serving,
            pinned=self.plan.fixed is not None,
            sessions_active=self.presence.handler.sessions_active,
            dwelt_s=time.monotonic() - self._settled_at,
            min_dwell_s=self.config.min_dwell_s,
            num_blocks_max=self.plan.num_blocks,
            fetch_bytes=fetch,
            disk_free_bytes=shutil.disk_usage(self.config.cache_dir or Path.home()).free if fetch else None,
        )

    # ------------------------------------------------------------------------------------------------- what others are told

    @property
    def _announcer(self) -> Announcer:
        return self.presence.announcer

    def condition(self) -> Condition:
        """Safe to call from any thread: it only reads."""
        said, measured = self._announcer.said, self._rates.measured
        loaded = self._loaded
        handler = self.presence.handler
        return Condition(
            state=_STATES[said[0]] if said else "starting",
            prefix=self.plan.prefix,
            version=self._version,
            device=str(loading.device_of(self.config)),
            dtype=self.plan.dtype_name,
            quant_type=self.config.quant_type,
            span=self._serving,
            loading=loaded[0] / loaded[1] if loaded and loaded[1] else None,
            throughput=self._announced_throughput(),
            inference_rps=measured.inference_rps if measured else None,
            forward_rps=measured.forward_rps if measured else None,
            network_rps=measured.network_rps if measured else None,
            sessions_active=handler.sessions_active,
            cache_tokens_left=handler.cache_tokens_left,
            cache_tokens=self.config.cache_tokens,
            using_relay=self._using_relay,
            public_name=self.config.public_name,
            connected=not self.presence.down,
            announcements=self._announcer.rounds,
            announcement_failures=self._announcer.failures,
            reconnects=self.presence.reconnects,
            moves=self._moves,
        )

    def _announced_throughput(self) -> float | None:
        return self._rates.announced(len(self._serving), bool(self._using_relay)) if self._serving else None

    def _describe(self) -> ServerRecord:
        now = self.condition()
        return ServerRecord(
            state=ServerState.JOINING,
            throughput=now.throughput,
            public_name=now.public_name,
            version=now.version,
            network_rps=now.network_rps,
            forward_rps=now.forward_rps,
            inference_rps=now.inference_rps,
            torch_dtype=now.dtype,
            quant_type=now.quant_type,
            adapters=tuple(folder.name for folder in self.config.adapters),
            using_relay=bool(now.using_relay),
            cache_tokens_left=now.cache_tokens_left,
            next_pings=self._ways.measured,
        )

    def _make_handler(self, node: Node) -> TransformerConnectionHandler:
        return TransformerConnectionHandler(
            node.p2p,
            self.plan.prefix,
            None,
            version=self._version,
            dht_client_mode=False,
            about=lambda: self.condition().to_info(),
        )

    async def _tell_systemd(self) -> None:
        """The watchdog is fed by this loop and only while p2pd is looked after, so that a runtime that hangs is restarted."""
        interval = self._systemd.watchdog_interval_s
        while True:
            self._systemd.status(self.condition().in_words())
            if interval is not None:
                self._systemd.alive()
            await asyncio.sleep(min(interval or STATUS_PERIOD_S, STATUS_PERIOD_S))

    async def _view(self) -> Model:
        """The model as this server sees it in the DHT, announcements believed."""
        if self.presence.down:
            raise Unreachable("p2pd is being replaced")
        readings = await read_blocks(self.presence.node, {self.plan.prefix: self.plan.facts.num_blocks})
        models = {self.plan.prefix: ModelRecord(self.plan.facts.num_blocks, None)}
        # Others may say for ever that they load: what was seen last time says since when.
        seen = assemble("", time.time(), models, readings, visits=None, known=self._seen).models[0]
        self._seen = {seen.prefix: {server.peer_id: server for server in seen.servers}}
        return seen

    def _write_ready_file(self, decision: Decision) -> None:
        span = decision.placement.span
        write_ready_file(
            self.config.ready_file,
            {
                "peer_id": self.presence.node.peer_id,
                "pid": os.getpid(),
                "span": [span.start, span.end],
                "reason": str(decision),
            },
        )
