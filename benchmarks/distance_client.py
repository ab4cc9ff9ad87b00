"""The client's side of `distance`: runs on a host of its own and prints its figures as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from blockserver.client.discovery import RouteFinder
from blockserver.client.drafts import Drafts, PromptLookup
from blockserver.client.model import RemoteModel
from blockserver.client.sampling import Sampling
from blockserver.model.facts import read_facts
from blockserver.rpc.pings import ping
from swarm.dht.node import Node, NodeConfig, start_node
from swarm.snapshot import PeerState

TEXT = "The history of the lighthouse begins with"
REPETITIVE = "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream.\n" * 3
STEPS_OF_A_HOP = 10
PINGS_OF_A_HOP = 5
KILLED_AFTER = 8
"""Tokens of the text in which a server is killed."""


class Client:
    def __init__(self, given: dict[str, Any], node: Node, finder: RouteFinder, model: RemoteModel) -> None:
        self.given, self.node, self.finder, self.model = given, node, finder, model
        self.text, self.repetitive = prompts(Path(given["model"]))
        self.how = Sampling(max_new_tokens=given["tokens"])

    async def swarm_is_whole(self) -> None:
        """Records of all servers, with the ways between them."""
        wanted = {server["peer_id"] for server in self.given["servers"]}
        while True:
            seen = await self.finder.view()
            online = {server.peer_id for server in seen.servers if server.state is PeerState.ONLINE}
            if wanted <= online and sum(bool(server.record.next_pings) for server in seen.servers) >= len(wanted) - 1:
                return
            await asyncio.sleep(1.0)

    async def text_of(self, prompt: list[int], *, push: bool, drafts: Drafts | None = None) -> tuple[list[int], float]:
        """The tokens, and seconds for each after the first."""
        tokens: list[int] = []
        async with self.model.session(len(prompt) + self.how.max_new_tokens, push=push) as session:
            async for token in self.model.generate(prompt, self.how, session, drafts=drafts):
                tokens.append(token)
                if len(tokens) == 1:
                    started = time.perf_counter()
            seconds = time.perf_counter() - started
            self.route = session.route
        return tokens, seconds / (len(tokens) - 1)

    async def parts(self) -> dict[str, float]:
        """Milliseconds of one token: the ways around the chain, the servers' own time, embedding and head.

        All hosts are equally far apart, so the shortest of some pings stands for each way: the rest waited for a core.
        """
        pings = [await ping(self.node.p2p, hop.peer_id) for hop in self.route for _ in range(PINGS_OF_A_HOP)]
        round_trip_s = min(pong.round_trip_s for pong in pings if pong is not None)
        own = [await self._own_time(hop.span, hop.peer_id, round_trip_s) for hop in self.route]
        return {
            "round_trip_ms": 1e3 * round_trip_s,
            "ways_ms": 1e3 * round_trip_s * (len(self.route) + 1) / 2,
            "servers_ms": 1e3 * sum(own),
            "client_ms": 1e3 * self._ends_s(),
        }

    async def _own_time(self, span: Any, peer_id: str, round_trip_s: float) -> float:
        token = torch.zeros(1, 1, self.model.facts.hidden_size, dtype=self.model.ends.dtype)
        times = []
        async with self.model.session(64, span=span, allowed=[peer_id]) as session:
            await session.step(token.expand(1, len(self.text), -1))
            for _ in range(STEPS_OF_A_HOP):
                started = time.perf_counter()
                await session.step(token)
                times.append(time.perf_counter() - started)
        return max(statistics.median(times) - round_trip_s, 0.0)

    def _ends_s(self) -> float:
        times = []
        for _ in range(STEPS_OF_A_HOP):
            started = time.perf_counter()
            self.model.ends.logits(self.model.ends.embed(torch.tensor([[3]])))
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    async def pause_after_kill(self) -> tuple[list[int], float]:
        """The text, and the longest pause between two tokens from the kill on."""
        tokens: list[int] = []
        pauses: list[float] = []
        pids = {server["peer_id"]: server["pid"] for server in self.given["twins"]}
        async with self.model.session(len(self.text) + self.how.max_new_tokens) as session:
            last = time.perf_counter()
            async for token in self.model.generate(self.text, self.how, session):
                now = time.perf_counter()
                pauses.append(now - last)
                last = now
                tokens.append(token)
                if len(tokens) == KILLED_AFTER:
                    [victim] = [hop.peer_id for hop in session.route if hop.peer_id in pids]
                    os.kill(pids[victim], signal.SIGKILL)
            if session.recoveries != 1:
                raise SystemExit(f"{session.recoveries} servers were replaced, not one")
        return tokens, max(pauses[KILLED_AFTER:])


def prompts(folder: Path) -> tuple[list[int], list[int]]:
    """A plain one and a repetitive one, in tokens. A model without a tokenizer, such as a random one, gets numbers."""
    if not (folder / "tokenizer.json").exists():
        return [5, 17, 42, 8, 3, 9], [7, 9, 11, 13] * 8
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    plain, repetitive = (list(tokenizer(text)["input_ids"]) for text in (TEXT, REPETITIVE))
    return plain, repetitive


async def measure(given: dict[str, Any]) -> dict[str, Any]:
    facts = read_facts(Path(given["model"]))
    node = await start_node(NodeConfig(initial_peers=tuple(given["peers"]), listen=(given["listen"],), client_mode=True))
    finder = RouteFinder(node, facts.prefix, facts.num_blocks)
    model = RemoteModel.load(Path(given["model"]), node.p2p, finder, dtype=getattr(torch, given["dtype"]))
    model.stop_ids = frozenset()
    try:
        client = Client(given, node, finder, model)
        await client.swarm_is_whole()
        rounds = []
        for _ in range(given["runs"] + 1):
            plain, plain_s = await client.text_of(client.text, push=False)
            pushed, push_s = await client.text_of(client.text, push=True)
            repeated, repetitive_s = await client.text_of(client.repetitive, push=True)
            drafted, drafts_s = await client.text_of(client.repetitive, push=True, drafts=PromptLookup())
            if plain != pushed or repeated != drafted:
                raise SystemExit("the texts differ")
            rounds.append({"plain_s": plain_s, "push_s": push_s, "repetitive_s": repetitive_s, "drafts_s": drafts_s})
        await client.text_of(client.text, push=True)
        parts = await client.parts()
        after, pause_s = await client.pause_after_kill()
    finally:
        model.close()
        await finder.close()
        await node.stop()
    return figures_of(rounds[1:], parts) | {"pause_s": pause_s, "same_text": after == plain, "hops": len(client.route)}


def figures_of(rounds: list[dict[str, float]], parts: dict[str, float]) -> dict[str, Any]:
    """Medians; the first round, in which connections are made, is not among `rounds`."""
    median = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    floor_ms = parts["ways_ms"] + parts["servers_ms"] + parts["client_ms"]
    return {
        "plain_tokens_per_s": 1 / median["plain_s"],
        "push_tokens_per_s": 1 / median["push_s"],
        "push_ms": 1e3 * median["push_s"],
        "push_ratio": statistics.median(one["plain_s"] / one["push_s"] for one in rounds),
        "repetitive_tokens_per_s": 1 / median["repetitive_s"],
        "drafts_tokens_per_s": 1 / median["drafts_s"],
        "drafts_ratio": statistics.median(one["repetitive_s"] / one["drafts_s"] for one in rounds),
        "floor_ms": floor_ms,
        "over_floor": 1e3 * median["push_s"] / floor_ms,
        **parts,
        "each_run": rounds,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(asyncio.run(measure(json.loads(sys.argv[1])))))
