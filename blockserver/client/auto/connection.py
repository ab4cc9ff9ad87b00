"""One client-mode peer of the swarm, and the thread with the event loop that it lives on.

Knows the node and how to wait for work on its loop; not models.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from swarm.dht.addresses import parse_peer_addresses
from swarm.dht.background import BackgroundLoop
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.errors import LocalError

T = TypeVar("T")

STOP_S = 15.0
"""Node and p2pd are given a few seconds each to end."""


class Connection:
    """`close` it, or use it as a context manager. `run` may be called from several threads, but not from its own loop."""

    def __init__(self, loop: BackgroundLoop, node: Node | None = None) -> None:
        self._loop = loop
        self._node = node
        self._closing = threading.Lock()
        self._closed = False
        if node is not None:
            # Whoever forgets to close leaves no p2pd behind.
            atexit.register(self.close)

    @classmethod
    def open(cls, initial_peers: Sequence[str]) -> Connection:
        """LocalError where no address is given or one cannot be read, Unreachable where no bootstrap peer answers."""
        addresses = parse_peer_addresses(initial_peers)
        if not addresses:
            raise LocalError("initial_peers is empty: give the address of at least one peer of the swarm")
        loop = BackgroundLoop("sepal-client")
        try:
            # Its parts have limits: p2pd's start and the bootstrap peers' answers.
            node = loop.run(start_node(NodeConfig(initial_peers=addresses, client_mode=True)), None)
        except BaseException:
            loop.stop()
            raise
        return cls(loop, node)

    @property
    def node(self) -> Node:
        if self._node is None:
            raise LocalError("this connection has no node of its own")
        return self._node

    @property
    def closed(self) -> bool:
        return self._closed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that has time limits of its own."""
        if self._closed:
            work.close()
            raise LocalError("the model's connection to the swarm is closed")
        return self._loop.run(work, None)

    def close(self) -> None:
        """May be called twice."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._node is not None:
            atexit.unregister(self.close)
            try:
                self._loop.run(self._node.stop(), STOP_S)
            finally:
                self._loop.stop()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
