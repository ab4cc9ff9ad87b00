"""The life of a server: advise, load, check, announce, serve, move where a hole needs it, leave in order.

JOINING is announced before loading; ONLINE only after the blocks answered a request of this server's own and others could
dial it; a move is accepted by the coordinator before anything is unloaded; OFFLINE is announced at the end, before sessions
are let run out. A move may lead to another model of the repertoire: then OFFLINE is announced for the old one before its
blocks are given up. Losing the coordinator, the monitor, bootstrap peers or p2pd ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import time
from pathlib import Path

from blockserver.compute.engine import Engine
from blockserver.config import ServeConfig
from blockserver.model.blocks import SpanModule
from blockserver.rpc.handler import TransformerConnectionHandler
from blockserver.serving import loading
from blockserver.serving.advice import BY_OPERATOR, Adviser, Candidate, Decision
from blockserver.serving.announce import Announcer
from blockserver.serving.condition import Condition
from blockserver.serving.conduct import Objection, Situation, objection
from blockserver.serving.failures import Failures
from blockserver.serving.hint_client import HintClient
from blockserver.serving.leasing import Leases
from blockserver.serving.neighbours import Ways
from blockserver.serving.polling import next_question_after
from blockserver.serving.presence import Presence
from blockserver.serving.reachability_check import wait_until_reachable
from blockserver.serving.repertoire import Repertoire
from blockserver.serving.selfcheck import check_own_blocks
from blockserver.serving.served_model import ServedModel
from blockserver.serving.standing import Standing, condition_of, record_of, tell_ready
from blockserver.serving.systemd import Systemd
from blockserver.serving.told import ToldMoves
from swarm.dht.node import Node, NodeConfig
from swarm.errors import RemoteError
from swarm.placement import Placement, urgency_of
from swarm.snapshot import Model
from swarm.wire.hints import DeclineReason, LeaseDocument, ReasonCode
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

log = logging.getLogger(__name__)

PROGRESS_PERIOD_S = 10.0
"""A lease being loaded lapses after three minutes without a word."""
JITTER = 0.2
"""Share by which the time between two questions varies, so that servers started together do not ask together."""
OFFLINE_TIMEOUT_S = 5.0
"""A DHT that does not take the good-bye in time learns of it when the records run out."""
STATUS_PERIOD_S = 10.0


class BlockServer:
    """One server in one swarm, on a node that has joined it."""

    def __init__(
        self,
        config: ServeConfig,
        repertoire: Repertoire,
        node_config: NodeConfig,
        node: Node,
        hints: HintClient | None,
        systemd: Systemd,
        version: str,
    ) -> None:
        self.config, self._systemd, self._version = config, systemd, version
        self._leases = Leases(hints, node.peer_id)
        models = [ServedModel(offer, self._node) for offer in repertoire]
        self._models = {model.prefix: model for model in models}
        self._now = Standing(models[0])
        self._module: SpanModule | None = None
        self._settled_at = time.monotonic()
        self._failures, self._told = Failures(), ToldMoves()
        self._ways = Ways(self._view)
        announcer = Announcer(node, models[0].prefix, repertoire[0].record, self._describe, config.update_period_s)
        self.presence = Presence(node_config, node, announcer, self._make_handler, config.alive_interval_s)
        self._adviser = Adviser(
            peer_id=node.peer_id,
            candidates=tuple(
                Candidate(
                    m.prefix, m.offer.num_blocks, m.offer.facts.num_blocks, m.view, m.pace, m.load_s, m.offer.blocks_on_disk
                )
                for m in models
            ),
            hints=hints,
            fallback_after_s=config.fallback_after_s,
            confirm_s=config.confirm_s,
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
            wait_s = next_question_after(self.config.hint_interval_s, self._adviser.retry_after_s)
            await asyncio.sleep(wait_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311
            await self._reconsider()

    async def _arrive(self) -> Decision:
        first = self._now.model.offer
        if first.fixed is not None:
            placement = Placement(first.fixed, ReasonCode.NOTHING_NEEDED, "set by --block-indices")
            return Decision(first.prefix, placement, BY_OPERATOR)
        decision = await self._adviser.arrive()
        if decision.lease is not None and await self._declined(decision):
            return await self._adviser.arrive(alone=True)
        return decision

    async def _reconsider(self) -> None:
        serving, model = self._now.span, self._now.model
        assert serving is not None
        if self.presence.down:
            return
        try:
            if model.rates.network_is_due:
                await model.measure_network()
            if model.offer.fixed is not None:
                return
            decision = await self._adviser.reconsider(model.prefix, serving, self.presence.handler.sessions_active)
        except RemoteError as error:
            log.warning("the swarm could not be read (%s); staying", error)
            return
        if decision is None or await self._declined(decision):
            return
        if not self._serves(decision):
            await self._settle(decision)
        elif decision.lease is not None:
            log.info("already serving %s", decision)
            await self._leases.take(decision.lease, serving)

    async def _leave(self) -> None:
        """OFFLINE first, so that no new client comes; then the open sessions get their time."""
        if self._announcer.said is not None and self._now.span is not None:
            log.info("leaving: announcing OFFLINE, then waiting for %d sessions", self.presence.handler.sessions_active)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._announcer.say(ServerState.OFFLINE, self._now.span), OFFLINE_TIMEOUT_S)
        await self.presence.drain(self.config.drain_s)

    # ---------------------------------------------------------------------------------------------------- to other blocks

    async def _settle(self, decision: Decision) -> None:
        """Takes the lease, if there is one, and only then unloads; loads; serves. Goes back where that fails."""
        if not await self._leases.take(decision.lease, self._now.span):
            if self._now.span is not None:
                return
            decision = await self._adviser.arrive(alone=True)
        before, there = self._now.span, self._now.model
        if before is not None and decision.lease is not None:
            self._told.note(time.monotonic())
        span, model = decision.placement.span, self._models[decision.prefix]
        instead = f" instead of {before.in_words()}{f' of {there.prefix}' if model is not there else ''}" if before else ""
        log.info("serving %s%s%s", decision, f" ({model.prefix})" if len(self._models) > 1 else "", instead)
        try:
            await self._serve(model, span, decision.lease)
        # Door: loading fails in as many ways as there are libraries, memory above all; what was served before can still be.
        except Exception as error:
            if before is None:
                raise
            where = before.in_words() if model is there else f"{before.in_words()} of {there.prefix}"
            log.error("%s of %s could not be served (%s); going back to %s", span.in_words(), model.prefix, error, where)
            await self._leases.decline(decision.lease, Objection(DeclineReason.FAILED, str(error)))
            await self._serve(there, before, None)
            return
        if before is not None:
            self._now.moves += 1
        tell_ready(self.config, self.presence.node.peer_id, decision)

    async def _serve(self, model: ServedModel, span: Span, lease: LeaseDocument | None) -> None:
        """Loads, checks and announces `span`; when it returns the server is ONLINE with it."""
        started = time.monotonic()
        if model is not self._now.model:
            await self._change_model(model)
        self.presence.set_engine(None)
        self._now.span = span
        await self._announcer.say(ServerState.JOINING, span)
        with self._failures.noted(model.prefix, span):
            engine = Engine(await self._load(span, lease), self.config.cache_tokens)
            self._module = engine.module
            self.presence.set_engine(engine)
            try:
                await check_own_blocks(self.presence.handler, engine, model.prefix)
                await model.rates.compute(engine)
            except BaseException:
                self.presence.set_engine(None)
                raise
        if model.rates.network_is_due:
            await model.measure_network()
        await self._check_reachability()
        await self._ways.measure(self.presence.node, span)
        await self._announcer.say(ServerState.ONLINE, span)
        self._settled_at = time.monotonic()
        log.info("ONLINE with %s after %.1f s; %s", span.in_words(), time.monotonic() - started, model.rates.measured)
        self._systemd.ready(self.condition().in_words())

    async def _change_model(self, model: ServedModel) -> None:
        """OFFLINE for the old model's blocks first, so that no client keeps coming; then they and their memory are given up."""
        await self._announcer.change_model(model.prefix, model.offer.record)
        self._now.model, self._now.span = model, None
        self.presence.set_model(model.prefix)
        self._module = None

    async def _load(self, span: Span, lease: LeaseDocument | None) -> SpanModule:
        reports = asyncio.create_task(self._report_loading(lease))
        model, started = self._now.model, time.monotonic()
        offer = model.offer
        try:
            reuse, self._module = self._module, None
            new = [block for block in span if reuse is None or block not in reuse.span]
            module = await loading.load(offer.config, offer.facts, span, offer.dtype, self._note_progress, reuse)
            model.note_load(len(new), time.monotonic() - started)
            return module
        finally:
            reports.cancel()
            self._now.loaded = None

    def _note_progress(self, done: int, total: int, seconds: float) -> None:
        self._now.loaded = (done, total)

    async def _report_loading(self, lease: LeaseDocument | None) -> None:
        while True:
            if not await self._leases.report(lease, self.condition().loading or 0.0):
                log.info("the lease has run out; loading goes on, since most of the work is done")
                lease = None
            await asyncio.sleep(PROGRESS_PERIOD_S)
            log.info(self.condition().in_words())

    async def _check_reachability(self) -> None:
        """Once in a life: a move changes nothing about it."""
        if not self.config.check_reachability or self._now.using_relay is not None:
            return
        verdict = await wait_until_reachable(
            self.presence.node, self.config.coordinator, relay=self.config.relay, within_s=self.config.reachable_within_s
        )
        self._now.using_relay = verdict.direct is False
        way = {True: "directly", False: "through a relay", None: "as far as anyone knows"}[verdict.direct]
        log.info("reachable %s: %s", way, verdict.in_words())

    async def _keep_measuring_ways(self) -> None:
        """Runs until cancelled; what is found goes out with the next announcement."""
        while True:
            await asyncio.sleep(self.config.update_period_s)
            if self._now.span is not None and not self.presence.down:
                await self._ways.measure(self.presence.node, self._now.span)

    # ------------------------------------------------------------------------------------------------------------- leases

    def _serves(self, decision: Decision) -> bool:
        return (decision.prefix, decision.placement.span) == (self._now.model.prefix, self._now.span)

    async def _declined(self, decision: Decision) -> bool:
        """Whether this server does not do what it was told, or what it found itself. A lease is declined with the reason."""
        span, lease = decision.placement.span, decision.lease
        if self._failures.recent(decision.prefix, span):
            words = f"{span.in_words()} could not be served here before"
            await self._leases.decline(lease, Objection(DeclineReason.FAILED, words))
            return True
        if self._serves(decision):
            return False
        urgency = lease.urgency if lease else urgency_of(decision.placement.reason_code)
        why = objection(urgency, self._situation(decision))
        if why is not None and lease is None:
            log.info("not moving to %s: %s", decision, why)
        elif why is not None:
            await self._leases.decline(lease, why)
        return why is not None

    def _situation(self, decision: Decision) -> Situation:
        """As the wanted model counts it: how much of its blocks must be fetched."""
        offer = self._models[decision.prefix].offer
        fetch = offer.bytes_to_fetch(decision.placement.span)
        return Situation(
            serving=self._now.span,
            pinned=offer.fixed is not None,
            sessions_active=self.presence.handler.sessions_active,
            dwelt_s=time.monotonic() - self._settled_at,
            min_dwell_s=self.config.min_dwell_s,
            fetch_bytes=fetch,
            disk_free_bytes=shutil.disk_usage(self.config.cache_dir or Path.home()).free if fetch else None,
            told_rest_s=self._told.rest_s(time.monotonic()) if decision.lease is not None else 0.0,
        )

    # ------------------------------------------------------------------------------------------------- what others are told

    @property
    def _announcer(self) -> Announcer:
        return self.presence.announcer

    def condition(self) -> Condition:
        """Safe to call from any thread: it only reads."""
        return condition_of(self._now, self.config, self.presence, self._version)

    def _describe(self) -> ServerRecord:
        return record_of(self.condition(), self._now, self._ways)

    def _make_handler(self, node: Node) -> TransformerConnectionHandler:
        return TransformerConnectionHandler(
            node.p2p,
            self._now.model.prefix,
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

    def _node(self) -> Node | None:
        return None if self.presence.down else self.presence.node

    async def _view(self) -> Model:
        """Of the model served now."""
        return await self._now.model.view()
