"""The crawl worker's one long-lived peer. Imports hivemind: only tasks on the queue `crawl` may import this file.

A dead p2pd answers wrongly and in silence, so the peer is checked before it is used and made anew where it does not pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from monitor.crawl import CrawlReport, Entrances, crawl
from monitor.privacy import digest
from monitor.progress import Stage, Tell, untold
from monitor.rates.choose import Subject
from monitor.rates.facts import Rate
from monitor.sizes import EVERYBODY, Witnesses
from swarm.dht import entrances
from swarm.dht.addresses import parse_peer_addresses, peer_id_of
from swarm.dht.afresh import FreshDialler
from swarm.dht.background import BackgroundLoop
from swarm.dht.bulk import Heard
from swarm.dht.canary import sings
from swarm.dht.forward import LIMIT_S, Asked, measure
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.dht.probe import dial, visit
from swarm.dht.reading import read_blocks, read_keys
from swarm.dht.roll_call import call_the_roll
from swarm.dht.routes import Connection, routes
from swarm.dht.silence import Silence
from swarm.errors import LocalError, SwarmError, Unreachable
from swarm.snapshot import Outcome, Reading, Snapshot, Visit
from swarm.throughput import rate_of
from swarm.wire.keys import MODELS_KEY
from swarm.wire.records import ModelRecord
from swarm.wire.spans import Span

CRAWL_TIMEOUT_S = 240.0
"""Below Celery's limit of 300 s, so that an endless crawl is recorded as failed and not killed without a word."""
NODE_TIMEOUT_S = 60.0
"""Starting a peer takes 0.4 s; p2pd gives up on silent bootstrap peers after 15 s each."""
STOP_TIMEOUT_S = 10.0
DIAL_LIMIT_S = 9.0
"""A dial ends after 5 s by itself; who asked waits for 10 s."""
FRESH_DIAL_LIMIT_S = 3.5
"""The same, after a dial that did not take place, or of a part of the addresses only."""


class NodeReader:
    """A node as `monitor.crawl.Reader`, for one crawl. Who is silent in it is not waited for again; `silence` is kept for the
    next one, which asks those first."""

    def __init__(self, node: Node, scouts: entrances.Scouts | None = None, silence: Silence | None = None) -> None:
        self._node, self._scouts = node, scouts
        self._silence = silence if silence is not None else Silence()
        self._silence.begin()
        self._dialler = FreshDialler(node.config.relay)

    async def close(self) -> None:
        await self._dialler.close()

    async def check_alive(self) -> None:
        await self._node.check_alive()

    async def rejoin(self) -> None:
        self._silence.forgive(self._node.dht.protocol.routing_table.uid_to_peer_id.values())
        await self._node.rejoin(passing_over=self._silence)

    async def bootstrap_states(self) -> Entrances:
        """Everybody else is called as well meanwhile: silent nodes and silent entrances are waited for together."""
        look = entrances.look(self._node, self._scouts, self._silence)
        (states, split), _ = await asyncio.gather(look, call_the_roll(self._node, self._silence))
        return Entrances(entrances.peers_up(states), states, split)

    async def canary(self) -> bool:
        return await sings(self._node, self._silence)

    async def read_index(self) -> Reading:
        return await read_keys(self._node, [MODELS_KEY], silence=self._silence)

    async def read_blocks(self, models: Mapping[str, int], heard: Heard | None = None) -> dict[str, Reading]:
        return await read_blocks(self._node, models, heard=heard, silence=self._silence)

    async def visit(self, peer_id: str, prefix: str, span: Span) -> Visit:
        return await visit(self._node.p2p, peer_id, prefix, span)

    async def visit_afresh(self, failed: Visit, prefix: str, span: Span) -> Visit:
        return await self._dialler.visit(failed, prefix, span)

    async def routes(self) -> Mapping[str, Connection]:
        """Networks as digests: what is stored must not say where anybody lives."""
        found = await routes(self._node.p2p)
        return {peer_id: replace(how, network=digest(how.network)) for peer_id, how in found.items()}


class Crawler:
    """Owns the node and the loop that it lives on. Safe to share between the threads of a worker."""

    def __init__(self, initial_peers: tuple[str, ...], relay: bool = False, look_for: tuple[str, ...] = ()) -> None:
        self._look_for = look_for
        self._initial_peers = initial_peers
        self._relay = relay
        self._scouts = entrances.Scouts()
        self._silence = Silence()
        self._loop = BackgroundLoop("crawler")
        self._node: Node | None = None
        self._node_lock = threading.Lock()
        self._crawling = threading.Lock()

    def crawl(
        self,
        swarm: str,
        known: Mapping[str, ModelRecord],
        previous: Snapshot | None = None,
        tell: Tell = untold,
        witnesses: Witnesses = EVERYBODY,
    ) -> CrawlReport | None:
        """What this crawl found, or why it failed; None where another one is still running.

        Where not even a peer could be started, none of the bootstrap peers has answered it.
        """
        if not self._crawling.acquire(blocking=False):
            return None
        started_at = time.time()
        bootstraps: dict[str, bool] = {}
        try:
            tell(Stage.STARTING, 0, 0)
            node = self._living_node()
            tell(Stage.ENTRANCES, 0, len({peer_id_of(address) for address in node.config.initial_peers}))
            return self._loop.run(self._pass(swarm, node, known, previous, tell, witnesses), CRAWL_TIMEOUT_S)
        except SwarmError as error:
            if self._node is None and isinstance(error, Unreachable):
                bootstraps = {peer_id_of(address): False for address in parse_peer_addresses(self._initial_peers)}
            return CrawlReport(swarm, started_at, time.time(), failure=str(error), bootstraps=bootstraps)
        finally:
            self._crawling.release()

    def crawl_elsewhere(
        self,
        swarm: str,
        known: Mapping[str, ModelRecord],
        previous: Snapshot | None = None,
        witnesses: Witnesses = EVERYBODY,
    ) -> CrawlReport | None:
        """The swarm once more, by a new peer that enters it through another bootstrap peer than the first; None where there is
        no other. For a crawl that is hard to believe: the peer that made it is given up as well."""
        with self._node_lock:
            self._discard()
        addresses = parse_peer_addresses(self._initial_peers)
        others = tuple(address for address in addresses if peer_id_of(address) != peer_id_of(addresses[0]))
        if not others:
            return None
        started_at = time.time()
        with self._crawling:
            try:
                config = NodeConfig(others, client_mode=True, relay=self._relay)
                node = self._loop.run(start_node(config), NODE_TIMEOUT_S)
                try:
                    return self._loop.run(self._pass(swarm, node, known, previous, untold, witnesses), CRAWL_TIMEOUT_S)
                finally:
                    self._end(node)
            except SwarmError as error:
                return CrawlReport(swarm, started_at, time.time(), failure=str(error))

    async def _pass(
        self,
        swarm: str,
        node: Node,
        known: Mapping[str, ModelRecord],
        previous: Snapshot | None,
        tell: Tell,
        witnesses: Witnesses,
    ) -> CrawlReport:
        reader = self._reader(node)
        try:
            return await crawl(swarm, reader, time.time, known, previous, self._look_for, tell, witnesses)
        finally:
            await reader.close()

    def _reader(self, node: Node) -> NodeReader:
        return NodeReader(node, self._scouts, self._silence)

    def dial(self, peer_id: str) -> Visit:
        """Raises SwarmError where our own end does not work: that says nothing about the peer."""
        node = self._living_node()
        answer = self._loop.run(self._dial(node, peer_id), DIAL_LIMIT_S)
        if answer.outcome is Outcome.ERROR:
            self._loop.run(node.check_alive(), STOP_TIMEOUT_S)
        return answer

    async def _dial(self, node: Node, peer_id: str) -> Visit:
        answer = await dial(node.p2p, peer_id)
        if not answer.backed_off:
            return answer
        dialler = FreshDialler(node.config.relay)
        try:
            async with asyncio.timeout(FRESH_DIAL_LIMIT_S):
                return await dialler.dial(answer)
        except TimeoutError:
            return answer
        finally:
            await dialler.close()

    def measure(self, subject: Subject) -> Rate:
        """Raises SwarmError where our own end does not work: that says nothing about the server."""
        node = self._living_node()
        what = Asked(subject.block, subject.seed) if subject.block is not None and subject.seed is not None else None
        pass_ = measure(
            node.p2p,
            subject.peer_id,
            subject.prefix,
            subject.span,
            subject.idle_cache_tokens,
            LIMIT_S,
            what,
            even_if_busy=subject.even_if_busy,
        )
        found = self._loop.run(pass_, LIMIT_S + STOP_TIMEOUT_S)
        if found.timing is None:
            self._loop.run(node.check_alive(), STOP_TIMEOUT_S)
        speed = rate_of(found.timing) if found.timing else None
        return Rate(speed, found.why, found.cache_tokens, found.wrong, found.block, found.whole)

    def stop(self) -> None:
        with self._node_lock:
            self._discard()
        self._loop.stop()

    def _living_node(self) -> Node:
        if not self._initial_peers:
            raise LocalError("no bootstrap peer is configured: set SEPAL_INITIAL_PEERS to the address of one")
        with self._node_lock:
            if self._node is not None:
                try:
                    self._loop.run(self._node.check_alive(), STOP_TIMEOUT_S)
                    return self._node
                except SwarmError:
                    self._discard()
            config = NodeConfig(parse_peer_addresses(self._initial_peers), client_mode=True, relay=self._relay)
            self._node = self._loop.run(start_node(config), NODE_TIMEOUT_S)
            return self._node

    def _discard(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            self._end(node)

    def _end(self, node: Node) -> None:
        async def stop_quietly() -> None:
            # A door: the peer is broken already, and so may be any step of its orderly end.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(node.stop(), STOP_TIMEOUT_S / 2)
            # Whatever hung: what is given up must not live on beside what replaces it.
            node.kill()

        with contextlib.suppress(SwarmError):
            self._loop.run(stop_quietly(), STOP_TIMEOUT_S)


_making = threading.Lock()


def crawler_for(initial_peers: tuple[str, ...], relay: bool, look_for: tuple[str, ...] = ()) -> Crawler:
    """The process's crawler of a swarm. Two threads that ask at once get the same one."""
    with _making:
        return _crawler(initial_peers, relay, look_for)


@functools.cache
def _crawler(initial_peers: tuple[str, ...], relay: bool, look_for: tuple[str, ...]) -> Crawler:
    return Crawler(initial_peers, relay, look_for)
