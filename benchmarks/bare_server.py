"""A process that serves blocks and nothing else: no DHT, no announcements. For benchmarks.

    python -m benchmarks.bare_server FOLDER START:END DTYPE

Speaks JSON lines: first its peer id and addresses, then, for each line that it reads, what it has spent so far. A line that
is not empty holds the peer id and addresses of another server, which it may be asked to push to.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from hivemind.p2p import P2P, PeerID
from hivemind.utils.multiaddr import Multiaddr

from blockserver.compute.engine import Engine
from blockserver.model.blocks import load_span
from blockserver.rpc.handler import TransformerConnectionHandler
from swarm.wire.spans import Span

PREFIX = "benchmark"
CACHE_TOKENS = 16_384


async def loopback_peer(dht_mode: str = "server") -> P2P:
    return await P2P.create(
        host_maddrs=["/ip4/127.0.0.1/tcp/0"], nat_port_map=False, auto_nat=False, use_relay=False, dht_mode=dht_mode
    )


async def connect(p2p: P2P, said: dict[str, Any]) -> None:
    """To a server, by what it said of itself."""
    await p2p._client.connect(PeerID.from_base58(said["peer_id"]), [Multiaddr(address) for address in said["addresses"]])


async def serve(folder: Path, span: Span, dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    p2p = await loopback_peer()
    engine = Engine(load_span(folder, span, dtype), CACHE_TOKENS)
    handler = TransformerConnectionHandler(p2p, PREFIX, engine, version="benchmark", dht_client_mode=False)
    await handler.start()
    suffix = f"/p2p/{p2p.peer_id}"
    addresses = [str(address).removesuffix(suffix) for address in await p2p.get_visible_maddrs()]
    _say({"peer_id": p2p.peer_id.to_base58(), "addresses": addresses})
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip():
            await connect(p2p, json.loads(line))
        spent = engine.spent
        _say({"compute_s": spent.seconds, "passes": spent.passes, "tokens": spent.tokens, "cpu_s": time.process_time()})
    engine.stop()
    await p2p.shutdown()


def _say(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    start, _, end = sys.argv[2].partition(":")
    asyncio.run(serve(Path(sys.argv[1]), Span(int(start), int(end)), getattr(torch, sys.argv[3])))
