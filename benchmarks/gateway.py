"""Chats at once through the gateway: tokens per second of all against those of one, and the worst wait for a first token.

    python -m benchmarks.gateway MODEL_DIR [--servers 2] [--chats 1 16] [--tokens 48] [--runs 3] [--json FILE]

Everything is a process of its own, as in production: a bootstrap peer, servers with equal spans and one thread each, and
`sepal gateway`; this process only reads streams. Each chat asks something of its own, and in float32 its text must be the same
each time. Levels alternate, the first round is not counted, figures are medians of rounds but for the worst wait, which is the
worst of all rounds. All share this machine's cores: on two of them, 16 chats are as fast as two cores are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from blockserver.model.facts import read_facts
from swarm.wire.spans import Span

LOCAL = ("--host-maddrs", "/ip4/127.0.0.1/tcp/0", "--no-nat-port-map", "--no-relay")
START_S = 120.0
CACHE_TOKENS = 32_768
"""Enough for every chat: what is measured is speed, not how a full server refuses."""


@dataclass(frozen=True, slots=True)
class Chat:
    text: str
    tokens: int
    first_s: float
    """From the request to the first piece of text."""
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Level:
    chats: int
    tokens_per_s: float
    """Of all chats, from the first request to the last token."""
    first_token_s: float
    worst_first_token_s: float


@contextmanager
def sepal(folder: Path, name: str, *words: str) -> Iterator[dict[str, Any]]:
    """A process and what it wrote into its ready file."""
    ready = folder / f"{name}.json"
    command = [sys.executable, "-m", "blockserver.cli", *words, "--ready-file", str(ready)]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start:\n{(folder / f'{name}.log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield json.loads(ready.read_text())
    finally:
        process.terminate()
        process.wait()


@contextmanager
def gateway(model: Path, servers: int, dtype: str, most: int) -> Iterator[str]:
    """Its address."""
    blocks = read_facts(model).num_blocks
    each = -(-blocks // servers)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sepal-bench-")))
        boot = stack.enter_context(sepal(folder, "bootstrap", "bootstrap", *LOCAL))["addresses"][0]
        for at in range(0, blocks, each):
            span = str(Span(at, min(at + each, blocks)))
            serve = ("serve", str(model), "--initial-peers", boot, "--block-indices", span, "--dtype", dtype, *LOCAL)
            more = ("--cache-tokens", str(CACHE_TOKENS), "--throughput", "100", "--state-dir", str(folder / "state"))
            stack.enter_context(sepal(folder, f"server-{at}", *serve, *more, "--skip-reachability-check"))
        words = ("gateway", "--model", str(model), "--initial-peers", boot, "--dtype", dtype, "--port", "0")
        room = ("--max-concurrent", str(most), "--max-waiting-each", str(most))
        yield stack.enter_context(sepal(folder, "gateway", *words, *room))["url"]


async def chat(client: httpx.AsyncClient, model: str, number: int, tokens: int) -> Chat:
    began = time.perf_counter()
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Tell me all about the number {number}, " * (1 + number % 4)}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text, first, used = "", 0.0, 0
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            raise SystemExit(f"chat {number}: {(await answer.aread()).decode()}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line.removeprefix("data: "))
            if "choices" not in chunk:
                raise SystemExit(f"chat {number}: {chunk}")
            piece = "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
            first = first or (time.perf_counter() - began if piece else 0.0)
            text += piece
            used = chunk["usage"]["completion_tokens"] if chunk.get("usage") else used
    return Chat(text, used, first, began, time.perf_counter())


async def measure(options: argparse.Namespace, url: str) -> list[list[Level]]:
    known: dict[int, str] = {}
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=httpx.Limits(max_connections=None)) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]

        async def level(chats: int) -> Level:
            said = await asyncio.gather(*(chat(client, model, number, options.tokens) for number in range(chats)))
            for number, one in enumerate(said):
                if known.setdefault(number, one.text) != one.text and options.dtype == "float32":
                    raise SystemExit(f"chat {number} said something else: {known[number]!r}, then {one.text!r}")
            took = max(one.ended for one in said) - min(one.began for one in said)
            waits = [one.first_s for one in said]
            return Level(chats, sum(one.tokens for one in said) / took, statistics.median(waits), max(waits))

        return [[await level(chats) for chats in options.chats] for _ in range(options.runs + 1)]


def figures(rounds: list[list[Level]], options: argparse.Namespace) -> dict[str, Any]:
    levels = {}
    for place, chats in enumerate(options.chats):
        column = [levels_of_round[place] for levels_of_round in rounds]
        levels[chats] = {
            "tokens_per_s": statistics.median(level.tokens_per_s for level in column),
            "ratio": statistics.median(one[place].tokens_per_s / one[0].tokens_per_s for one in rounds),
            "first_token_s": statistics.median(level.first_token_s for level in column),
            "worst_first_token_s": max(level.worst_first_token_s for level in column),
        }
    return {
        "model": options.model.name,
        "dtype": options.dtype,
        "servers": options.servers,
        "tokens": options.tokens,
        "rounds": len(rounds),
        "levels": levels,
        "each_round": [[asdict(level) for level in levels_of_round] for levels_of_round in rounds],
    }


def table(found: dict[str, Any]) -> str:
    lines = [" ".join(f"{name:>18}" for name in ("chats", "tokens/s", "ratio", "first token, s", "worst of all, s"))]
    for chats, level in found["levels"].items():
        numbers = (level["tokens_per_s"], level["ratio"], level["first_token_s"], level["worst_first_token_s"])
        lines.append(" ".join(f"{cell:>18}" for cell in (str(chats), *(f"{number:.2f}" for number in numbers))))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="chats at once through the gateway, against one")
    parser.add_argument("model", type=Path)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--chats", type=int, nargs="+", default=[1, 16], help="the first is what others are compared to")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--json", type=Path, help="where to write the figures, each round included")
    options = parser.parse_args()
    with gateway(options.model, options.servers, options.dtype, max(options.chats)) as url:
        rounds = asyncio.run(measure(options, url))
    found = figures(rounds[1:], options)
    print(table(found))
    print(json.dumps({key: value for key, value in found.items() if key != "each_round"}))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
