"""Many sessions at once over the same servers: total tokens per second against those of one session, in one run.

    python -m benchmarks.sessions MODEL_DIR [--servers 1] [--sessions 1 8 16] [--tokens 48] [--runs 3] [--json FILE]

The model is cut into equal spans, one process with one thread for each, all on loopback. Every session has a prompt of its
own length and decodes greedily; its tokens must be those of local transformers. The clients' embedding and head would run
on machines of their own: with `--ends after` (the default) each session is fed the known tokens, and the heads are computed
and compared when the clock has stopped; with `--ends within` one client process computes them as it goes, on the same two
cores. Levels alternate, the first round is not counted, ratios are medians of rounds. The model itself, batched in one
process, is measured beside.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.bare_server import PREFIX, loopback_peer
from benchmarks.decode import Server
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from blockserver.model.facts import read_facts
from swarm.routing import Hop, Route
from swarm.wire.spans import Span

SHORTEST_PROMPT = 5
LONGEST_PROMPT = 80
TARGETS = {8: 3.2, 16: 4.8}


@dataclass(frozen=True, slots=True)
class Level:
    """So many sessions at once: tokens per second of all, over the time in which all were decoding."""

    sessions: int
    tokens_per_s: float
    server_compute_share: float
    """Of the wall time, summed over servers."""
    server_cpu_ms_per_token: float
    rows_per_pass: float


class Measurement:
    """Counts tokens between the moment when all sessions have begun and that when the first has ended."""

    def __init__(self, sessions: int, servers: list[Server]) -> None:
        self._waiting = sessions
        self._servers = servers
        self._all_begun = asyncio.Event()
        self._ended = False
        self.counted = 0
        self.seconds = 0.0
        self.spent: dict[str, float] = {}

    async def begun(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._before = [await server.spent() for server in self._servers]
            self._started = time.perf_counter()
            self._all_begun.set()
        await self._all_begun.wait()

    def token(self) -> None:
        self.counted += not self._ended

    async def ended(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.seconds = time.perf_counter() - self._started
        after = [await server.spent() for server in self._servers]
        self.spent = {key: sum(now[key] - then[key] for now, then in zip(after, self._before, strict=True)) for key in after[0]}


class Bench:
    def __init__(self, remote: RemoteModel, servers: list[Server], known: list[list[int]], prompts: list[list[int]]) -> None:
        self.remote = remote
        self.servers = servers
        self.known = known
        self.prompts = prompts

    async def level(self, sessions: int, within: bool) -> Level:
        measured = Measurement(sessions, self.servers)
        run = self._within if within else self._after
        await asyncio.gather(*(run(number, measured) for number in range(sessions)))
        tokens = measured.counted
        return Level(
            sessions=sessions,
            tokens_per_s=tokens / measured.seconds,
            server_compute_share=measured.spent["compute_s"] / measured.seconds,
            server_cpu_ms_per_token=1e3 * measured.spent["cpu_s"] / tokens,
            rows_per_pass=measured.spent["tokens"] / max(measured.spent["passes"], 1.0),
        )

    async def _within(self, number: int, measured: Measurement) -> None:
        tokens: list[int] = []
        source: AsyncIterator[int] = self.remote.generate(
            self.prompts[number], Sampling(max_new_tokens=len(self.known[number]))
        )
        async for token in source:
            tokens.append(token)
            if len(tokens) == 1:
                await measured.begun()
            else:
                measured.token()
        await measured.ended()
        _compare(number, tokens, self.known[number])

    async def _after(self, number: int, measured: Measurement) -> None:
        known, prompt = self.known[number], self.prompts[number]
        ends = self.remote.ends
        outputs = []
        async with self.remote.session(len(prompt) + len(known)) as session:
            outputs.append((await session.step(ends.embed(torch.tensor([prompt]))))[:, -1:])
            await measured.begun()
            for token in known[:-1]:
                outputs.append(await session.step(ends.embed(torch.tensor([[token]]))))
                measured.token()
            await measured.ended()
        _compare(number, [int(ends.logits(output).argmax()) for output in outputs], known)


def _compare(number: int, tokens: list[int], expected: list[int]) -> None:
    if tokens != expected:
        raise SystemExit(f"session {number}: the tokens differ: {tokens} over the servers, {expected} locally")


@torch.inference_mode()
def _greedy(whole: Any, prompt: list[int], count: int) -> list[int]:
    output = whole(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
    tokens = [int(output.logits[0, -1].argmax())]
    while len(tokens) < count:
        output = whole(torch.tensor([tokens[-1:]]), cache=output.cache, use_cache=True)
        tokens.append(int(output.logits[0, -1].argmax()))
    return tokens


@torch.inference_mode()
def _batched_itself(whole: Any, rows: int, steps: int = 12) -> float:
    """Tokens per second of the model in this process with that many equal rows: what batching can give at all."""
    output = whole(torch.full((rows, LONGEST_PROMPT), 3), use_cache=True, logits_to_keep=1)
    started = time.perf_counter()
    for _ in range(steps):
        output = whole(torch.full((rows, 1), 3), cache=output.cache, use_cache=True)
    return rows * steps / (time.perf_counter() - started)


async def benchmark(options: argparse.Namespace) -> dict[str, Any]:
    facts = read_facts(options.model)
    per_server = -(-facts.num_blocks // options.servers)
    spans = [Span(at, min(at + per_server, facts.num_blocks)) for at in range(0, facts.num_blocks, per_server)]
    dtype = getattr(torch, options.dtype)
    whole: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
    whole.eval()
    source = torch.Generator().manual_seed(0)
    most = max(options.sessions)
    lengths = [int(length) for length in torch.linspace(SHORTEST_PROMPT, LONGEST_PROMPT, most)]
    prompts = [torch.randint(3, facts.vocab_size, (length,), generator=source).tolist() for length in lengths]
    known = [_greedy(whole, prompt, options.tokens) for prompt in prompts]
    async with AsyncExitStack() as stack:
        client = await loopback_peer("client")
        stack.push_async_callback(client.shutdown)
        servers = [Server(options.model, span, options.dtype) for span in spans]
        for server in servers:
            stack.callback(server.stop)
        route: tuple[Hop, ...] = tuple([await server.ready(client) for server in servers])

        async def find_route(span: Span, avoid: Collection[str]) -> Route:
            return route

        remote = RemoteModel.load(options.model, client, find_route, prefix=PREFIX, dtype=dtype)
        remote.stop_ids = frozenset()
        stack.callback(remote.close)
        bench = Bench(remote, servers, known, prompts)
        rounds, itself = [], []
        for _ in range(options.runs + 1):
            rounds.append([await bench.level(sessions, options.ends == "within") for sessions in options.sessions])
            itself.append({sessions: _batched_itself(whole, sessions) for sessions in options.sessions})
        return _figures(rounds[1:], itself[1:], options)


def _figures(rounds: list[list[Level]], itself: list[dict[int, float]], options: argparse.Namespace) -> dict[str, Any]:
    levels = {}
    for place, sessions in enumerate(options.sessions):
        column = [levels_of_round[place] for levels_of_round in rounds]
        levels[sessions] = {
            name: statistics.median(getattr(level, name) for level in column)
            for name in ("tokens_per_s", "server_compute_share", "server_cpu_ms_per_token", "rows_per_pass")
        }
        levels[sessions]["ratio"] = statistics.median(
            level.tokens_per_s / levels_of_round[0].tokens_per_s for level, levels_of_round in zip(column, rounds, strict=True)
        )
        levels[sessions]["ratio_itself"] = statistics.median(one[sessions] / one[options.sessions[0]] for one in itself)
    return {
        "model": options.model.name,
        "dtype": options.dtype,
        "servers": options.servers,
        "ends": options.ends,
        "tokens": options.tokens,
        "rounds": len(rounds),
        "levels": levels,
        "each_round": [[asdict(level) for level in levels_of_round] for levels_of_round in rounds],
    }


def _table(figures: dict[str, Any]) -> str:
    names = ("sessions", "tokens/s", "ratio", "to reach", "model itself", "rows/pass", "computing", "CPU ms/token")
    lines = [" ".join(f"{name:>12}" for name in names)]
    for sessions, level in figures["levels"].items():
        cells = (
            str(sessions),
            f"{level['tokens_per_s']:.1f}",
            f"{level['ratio']:.2f}",
            str(TARGETS.get(sessions, "")),
            f"{level['ratio_itself']:.2f}",
            f"{level['rows_per_pass']:.1f}",
            f"{level['server_compute_share']:.0%}",
            f"{level['server_cpu_ms_per_token']:.1f}",
        )
        lines.append(" ".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="many sessions at once against one")
    parser.add_argument("model", type=Path)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8, 16], help="the first is what others are compared to")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--ends", choices=["after", "within"], default="after", help="when the clients compute their heads")
    parser.add_argument("--json", type=Path, help="where to write the figures, each round included")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = asyncio.run(benchmark(options))
    print(_table(figures))
    print(json.dumps({key: value for key, value in figures.items() if key != "each_round"}))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
