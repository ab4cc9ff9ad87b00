"""Greedy decoding over a chain of servers against local transformers, side by side in one run.

    python -m benchmarks.decode MODEL_DIR [--servers 3] [--tokens 64] [--runs 5] [--dtype float32] [--json FILE]

The model is cut into equal spans, one process with one thread for each, all on loopback. Runs alternate: local, over the
chain, over the chain with servers that push to each other. The first round is not counted, figures are medians; a run in
which the tokens differ is an error. Real Petals on the 30-block demo model
reached 0.56 to 0.64 of local.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
from hivemind.p2p import P2P
from transformers import AutoModelForCausalLM

from benchmarks.bare_server import PREFIX, connect, loopback_peer
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from blockserver.model.facts import read_facts
from blockserver.wire import tensors
from swarm.routing import Hop, Route
from swarm.wire.spans import Span

PROMPT_TOKENS = 24
PETALS = "0.56 to 0.64"


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds for each token after the first, which comes with the prefill."""

    local_s: float
    local_cpu_s: float
    chain_s: float
    push_s: float
    client_cpu_s: float
    server_cpu_s: float
    server_compute_s: float


class Server:
    """One server process and what it says."""

    def __init__(self, folder: Path, span: Span, dtype: str) -> None:
        self.span = span
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bare_server", str(folder), str(span), dtype],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    async def ready(self, client: P2P) -> Hop:
        self.said = await asyncio.to_thread(self._read)
        await connect(client, self.said)
        return Hop(self.said["peer_id"], self.span)

    async def meet(self, other: Server) -> None:
        """So that it can push to the other."""
        await self._ask(json.dumps(other.said))

    async def spent(self) -> dict[str, float]:
        return await self._ask("")

    async def _ask(self, line: str) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return await asyncio.to_thread(self._read)

    def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(10)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the server of {self.span.in_words()} ended with exit code {self.process.wait()}")
        return cast(dict[str, Any], json.loads(line))


async def benchmark(options: argparse.Namespace) -> dict[str, Any]:
    facts = read_facts(options.model)
    per_server = -(-facts.num_blocks // options.servers)
    starts = range(0, facts.num_blocks, per_server)
    spans = [Span(start, min(start + per_server, facts.num_blocks)) for start in starts]
    async with AsyncExitStack() as stack:
        client = await loopback_peer("client")
        stack.push_async_callback(client.shutdown)
        servers = [Server(options.model, span, options.dtype) for span in spans]
        for server in servers:
            stack.callback(server.stop)
        route = tuple([await server.ready(client) for server in servers])
        for server, after in pairwise(servers):
            await server.meet(after)

        async def find_route(span: Span, avoid: Collection[str]) -> Route:
            return route

        dtype = getattr(torch, options.dtype)
        whole: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
        whole.eval()
        remote = RemoteModel.load(options.model, client, find_route, prefix=PREFIX, dtype=dtype)
        remote.stop_ids = frozenset()
        stack.callback(remote.close)
        prompt = torch.randint(3, facts.vocab_size, (PROMPT_TOKENS,), generator=torch.Generator().manual_seed(0))
        runs = [await _pair(whole, remote, servers, prompt.tolist(), options.tokens) for _ in range(options.runs + 1)]
        fixed = {"client_ends": 1e3 * _ends_s(remote), "serialisation": 1e3 * len(servers) * _serialisation_s(remote)}
        return _figures(runs[1:], fixed, options)


async def _pair(whole: Any, remote: RemoteModel, servers: list[Server], prompt: list[int], count: int) -> Run:
    """One local run, then one over the chain, then one with push."""
    expected, local_s, local_cpu_s = _local(whole, prompt, count)
    chain = await _over_chain(remote, servers, prompt, expected, push=False)
    pushed = await _over_chain(remote, servers, prompt, expected, push=True)
    steps = count - 1
    return Run(
        local_s=local_s / steps,
        local_cpu_s=local_cpu_s / steps,
        chain_s=chain["seconds"] / steps,
        push_s=pushed["seconds"] / steps,
        client_cpu_s=chain["client_cpu_s"] / steps,
        server_cpu_s=chain["cpu_s"] / steps,
        server_compute_s=chain["compute_s"] / steps,
    )


async def _over_chain(
    remote: RemoteModel, servers: list[Server], prompt: list[int], expected: list[int], *, push: bool
) -> dict[str, float]:
    """What the tokens after the first took, here and in all servers together."""
    tokens: list[int] = []
    async with remote.session(len(prompt) + len(expected)) as session:
        session.push = push
        async for token in remote.generate(prompt, Sampling(max_new_tokens=len(expected)), session):
            tokens.append(token)
            if len(tokens) == 1:
                before = [await server.spent() for server in servers]
                started, started_cpu = time.perf_counter(), time.process_time()
        taken = {"seconds": time.perf_counter() - started, "client_cpu_s": time.process_time() - started_cpu}
    after = [await server.spent() for server in servers]
    if tokens != expected:
        raise SystemExit(f"the tokens differ: {tokens} over the chain, {expected} locally")
    return taken | {key: sum(now[key] - then[key] for now, then in zip(after, before, strict=True)) for key in after[0]}


@torch.inference_mode()
def _local(whole: Any, prompt: list[int], count: int) -> tuple[list[int], float, float]:
    """A plain loop rather than `generate()`, whose bookkeeping would flatter the chain."""
    output = whole(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
    tokens = [int(output.logits[0, -1].argmax())]
    started, started_cpu = time.perf_counter(), time.process_time()
    while len(tokens) < count:
        output = whole(torch.tensor([tokens[-1:]]), cache=output.cache, use_cache=True)
        tokens.append(int(output.logits[0, -1].argmax()))
    return tokens, time.perf_counter() - started, time.process_time() - started_cpu


def _figures(runs: list[Run], fixed: dict[str, float], options: argparse.Namespace) -> dict[str, Any]:
    """`fixed` holds milliseconds for each token that are measured apart."""

    def median_ms(name: str) -> float:
        return 1e3 * float(statistics.median(getattr(run, name) for run in runs))

    between = 1e3 * statistics.median(run.chain_s - run.server_compute_s for run in runs)
    return {
        "model": options.model.name,
        "dtype": options.dtype,
        "servers": options.servers,
        "tokens": options.tokens,
        "runs": len(runs),
        "local_tokens_per_s": 1e3 / median_ms("local_s"),
        "chain_tokens_per_s": 1e3 / median_ms("chain_s"),
        "ratio": statistics.median(run.local_s / run.chain_s for run in runs),
        "ratio_push": statistics.median(run.local_s / run.push_s for run in runs),
        "ratio_petals": PETALS,
        "ms_per_token": {
            "local": median_ms("local_s"),
            "chain": median_ms("chain_s"),
            "chain_push": median_ms("push_s"),
            "server_compute": median_ms("server_compute_s"),
            **fixed,
            "network": between - sum(fixed.values()),
        },
        "cpu_ms_per_token": {
            "local": median_ms("local_cpu_s"),
            "servers": median_ms("server_cpu_s"),
            "client": median_ms("client_cpu_s"),
            "servers_over_local": statistics.median(run.server_cpu_s / run.local_cpu_s for run in runs),
        },
        "each_run": [asdict(run) for run in runs],
    }


def _serialisation_s(remote: RemoteModel, repeats: int = 2_000) -> float:
    """One hop's share: the token's hidden states are written and read on the way there and on the way back."""
    hidden = torch.zeros(1, 1, remote.facts.hidden_size, dtype=remote.ends.dtype)
    started = time.perf_counter()
    for _ in range(repeats):
        tensors.decode(tensors.encode(hidden))
        tensors.decode(tensors.encode(hidden))
    return (time.perf_counter() - started) / repeats


def _ends_s(remote: RemoteModel, repeats: int = 20) -> float:
    """Embedding and head of one token, which the client computes."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        remote.ends.logits(remote.ends.embed(torch.tensor([[3]])))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _table(figures: dict[str, Any]) -> str:
    wall, cpu = figures["ms_per_token"], figures["cpu_ms_per_token"]
    rows = [
        ("tokens/s, local transformers", f"{figures['local_tokens_per_s']:.1f}"),
        (f"tokens/s, chain of {figures['servers']} servers", f"{figures['chain_tokens_per_s']:.1f}"),
        ("ratio (real Petals: " + PETALS + ")", f"{figures['ratio']:.2f}"),
        ("ratio with push", f"{figures['ratio_push']:.2f}"),
        ("ms/token, local", f"{wall['local']:.2f}"),
        ("ms/token, chain", f"{wall['chain']:.2f}"),
        ("    compute in the servers", f"{wall['server_compute']:.2f}"),
        ("    serialisation", f"{wall['serialisation']:.2f}"),
        ("    embedding and head in the client", f"{wall['client_ends']:.2f}"),
        ("    network, hand-over, waiting for a core", f"{wall['network']:.2f}"),
        ("ms/token, chain with push", f"{wall['chain_push']:.2f}"),
        ("CPU ms/token, local", f"{cpu['local']:.2f}"),
        ("CPU ms/token, all servers", f"{cpu['servers']:.2f}"),
        ("CPU ms/token, client", f"{cpu['client']:.2f}"),
        ("server CPU / local CPU (real Petals: 1.5)", f"{cpu['servers_over_local']:.2f}"),
    ]
    return "\n".join(f"{name:<42} {value:>8}" for name, value in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="greedy decoding over a chain of servers against local transformers")
    parser.add_argument("model", type=Path)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--json", type=Path, help="where to write the figures, each run included")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = asyncio.run(benchmark(options))
    print(_table(figures))
    print(json.dumps({key: value for key, value in figures.items() if key != "each_run"}))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
