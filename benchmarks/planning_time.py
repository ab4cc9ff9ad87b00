"""How long the planner thinks, on one core: one model of many servers, and many models of some.

    python -m benchmarks.planning_time [--runs 5] [--json FILE]

Three states of a swarm: as joined, with 2 % of the servers gone, and with a hole. Everything from the snapshot's model to the
moves counts, and all servers may be asked to move: that is the most work. Figures are medians of CPU time.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from swarm.placement import Circumstances, choose_span, plan
from swarm.snapshot import Model, PeerState, Server
from swarm.wire.records import ServerRecord, ServerState
from swarm.wire.spans import Span

BLOCKS = 126
SIZES = (4, 6, 9, 13, 24)
TINY = (1,)
"""With spans like these even 5,000 servers are not so many that the planner would leave them to arrivals alone."""


CASES = (
    ("1 x 500", 500, 1, SIZES),
    ("1 x 5,000", 5000, 1, SIZES),
    ("1 x 5,000 tiny", 5000, 1, TINY),
    ("20 x 250", 250, 20, SIZES),
)


def swarm_of(count: int, seed: int, sizes: Sequence[int] = SIZES, blocks: int = BLOCKS) -> Model:
    """Servers of mixed size and speed, spread over the model but not by throughput."""
    draw = random.Random(seed)
    servers = []
    for number in range(count):
        size = draw.choice(sizes)
        start = min(blocks - size, int(number * 7.3) % blocks)
        span, rate = Span(start, start + size), draw.lognormvariate(5.0, 1.0)
        record = ServerRecord(ServerState.ONLINE, rate, span)
        servers.append(Server(f"peer-{number:05d}", span, PeerState.ONLINE, record, 4e9))
    return Model("m", blocks, None, tuple(sorted(servers, key=lambda server: (server.span, server.peer_id))))


def thinned(model: Model, seed: int) -> Model:
    draw = random.Random(seed)
    return replace(model, servers=tuple(server for server in model.servers if draw.random() > 0.02))


def holed(model: Model) -> Model:
    return replace(model, servers=tuple(server for server in model.servers if 60 not in server.span))


def plan_all(models: Iterable[Model]) -> None:
    for model in models:
        plan(model, known=Circumstances())


def milliseconds(work: Callable[[], object], runs: int) -> float:
    taken = []
    for _ in range(runs):
        started = time.process_time()
        work()
        taken.append(1000 * (time.process_time() - started))
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for label, count, models, sizes in CASES:
        swarms = [swarm_of(count, seed, sizes) for seed in range(models)]
        states = {"as joined": swarms, "2 % gone": [thinned(s, 1) for s in swarms], "a hole": [holed(s) for s in swarms]}
        for state, several in states.items():
            figures[f"{label}, {state}: plan"] = milliseconds(partial(plan_all, several), options.runs)
        figures[f"{label}: an arrival"] = milliseconds(partial(choose_span, swarms[0], 9), options.runs)
    for name, figure in figures.items():
        print(f"{name:<32} {figure:8.1f} ms")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
