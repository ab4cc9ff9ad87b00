"""What this server announces as its speed: kept figures where they still hold, measured ones otherwise.

Knows when to measure; how is `throughput` and `network_rate`, where figures are kept is `measured`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from importlib.metadata import version

import torch

from blockserver.compute.engine import Engine
from blockserver.compute.throughput import Throughput, measure
from blockserver.config import ServeConfig
from blockserver.devices import device_model
from blockserver.serving.measured import MeasuredRates, Setup
from blockserver.serving.network_rate import network_tokens_per_s
from swarm.dht.node import Node
from swarm.placement import Pace
from swarm.snapshot import Model, PeerState
from swarm.wire.keys import block_uid

log = logging.getLogger(__name__)

RETRY_NETWORK_S = 600.0
"""A first server of a swarm has nobody to measure against; others come."""


class Rates:
    def __init__(self, config: ServeConfig, prefix: str) -> None:
        self._config = config
        self._prefix = prefix
        self._kept = MeasuredRates(config.state_dir)
        self._network_tried_at = float("-inf")
        self._load_s_per_block: float | None = None
        self.measured: Throughput | None = None

    def announced(self, blocks: int, relay: bool) -> float | None:
        """Tokens per second; what the operator set goes before what was measured."""
        if not isinstance(self._config.throughput, str):
            return self._config.throughput
        return self.measured.announced(blocks, relay) if self.measured else None

    @property
    def network_is_due(self) -> bool:
        known = self.measured is not None and self.measured.network_rps is not None
        return not known and time.monotonic() - self._network_tried_at > RETRY_NETWORK_S

    def pace(self, dtype: str, device: str, bytes_per_token: int) -> Pace | None:
        """What is known of this machine's speed, also before it holds any block: from an earlier start."""
        if not isinstance(self._config.throughput, str):
            return None
        if self.measured is not None:
            return Pace(self.measured.forward_rps, self.measured.network_rps)
        if self._config.throughput == "eval":
            return None
        now = time.time()
        kept = self._kept.compute(_setup(self._prefix, dtype, self._config.quant_type, device), now)
        return Pace(kept[1], self._kept.network(bytes_per_token, now)) if kept else None

    def note_load(self, dtype: str, device: str, blocks: int, seconds: float) -> None:
        """Of the blocks that had to be loaded; where all were there already, nothing is learnt."""
        if blocks and seconds > 0.0:
            self._load_s_per_block = seconds / blocks
            self._kept.keep_load(_setup(self._prefix, dtype, self._config.quant_type, device), seconds / blocks, time.time())

    def load_s(self, dtype: str, device: str, blocks: int) -> float | None:
        """Seconds for so many blocks, as quick as those of the last load here; None where none was timed."""
        for_each = self._load_s_per_block
        if for_each is None:
            setup = _setup(self._prefix, dtype, self._config.quant_type, device)
            for_each = self._kept.load_s_per_block(setup, time.time())
        return None if for_each is None else for_each * blocks

    async def compute(self, engine: Engine) -> None:
        """Of the span that the engine holds. Takes well below a second where it must be measured."""
        setup = setup_of(self._prefix, engine, self._config.quant_type)
        kept = None if self._config.throughput == "eval" else self._kept.compute(setup, time.time())
        network = self.measured.network_rps if self.measured else None
        if kept is not None:
            self.measured = Throughput(*kept, network)
            log.info("%s (kept from an earlier start)", self.measured)
            return
        self.measured = await measure(engine, network)
        self._kept.keep_compute(setup, self.measured.inference_rps, self.measured.forward_rps, time.time())
        log.info("%s (measured now)", self.measured)

    async def network(self, node: Node, seen: Model, bytes_per_token: int) -> None:
        """Against servers that are online in `seen`; stays unknown where there are none."""
        assert self.measured is not None
        kept = None if self._config.throughput == "eval" else self._kept.network(bytes_per_token, time.time())
        rate = kept
        if rate is None:
            self._network_tried_at = time.monotonic()
            rate = await network_tokens_per_s(node.p2p, list(_askable(seen, self._prefix, node.peer_id)), bytes_per_token)
            if rate is not None:
                self._kept.keep_network(rate, bytes_per_token, time.time())
        if rate is not None:
            how = "measured against peers" if kept is None else "kept from an earlier start"
            log.info("the network carries %.0f tokens/s (%s)", rate, how)
            self.measured = Throughput(self.measured.inference_rps, self.measured.forward_rps, rate)


def setup_of(model: str, engine: Engine, quant_type: str) -> Setup:
    return _setup(model, str(engine.dtype).removeprefix("torch."), quant_type, str(engine.module.device))


def _setup(model: str, dtype: str, quant_type: str, device: str) -> Setup:
    return Setup(
        model=model,
        dtype=dtype,
        quant_type=quant_type,
        device=device_model(device),
        threads=torch.get_num_threads(),
        software=f"sepal {version('sepal')}, torch {torch.__version__}, transformers {version('transformers')}",
    )


def _askable(seen: Model, prefix: str, me: str) -> Iterable[tuple[str, str]]:
    """Servers that are online, those on a direct line first: a relay's rate is not this machine's."""
    others = [server for server in seen.servers if server.state is PeerState.ONLINE and server.peer_id != me]
    for server in sorted(others, key=lambda server: (bool(server.record.using_relay), server.peer_id)):
        yield server.peer_id, block_uid(prefix, server.span.start)
