"""What distance costs: a chain of servers 80 ms from the client and from each other, and what shortens the way.

    python -m benchmarks.distance MODEL_DIR [--round-trip-ms 80] [--servers 4] [--tokens 48] [--runs 2] [--json FILE]

Needs root: each server, the client, a replica of one server and a bootstrap peer have a network namespace of their own
(`far_hosts`). The delay is netem's where the kernel has it, and otherwise that of a router in user space, which forwards IP
packets between TUN devices after a while in a queue; the output says which. The servers are `sepal serve`, found over the DHT,
routes are chosen by measured pings, nothing is prepared by hand.

Compared in one run, alternating: servers that push to each other and servers that do not; prompt-lookup drafts and none on a
repetitive text. All texts must be equal. The floor is what the measured parts add up to: half round trips around the chain,
each server's own time for a token (its time for one hop, less the shortest ping), embedding and head. At the end the server
that has a replica is killed with -9 amid a text, and the longest pause between two tokens is taken.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.far_hosts import FarHosts

READY_WITHIN_S = 240.0
TARGETS = {"push_ratio": 1.5, "drafts_ratio": 3.0, "pause_s": 2.0}


def start(far: FarHosts, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The swarm; what the client needs to know of it."""
    sepal = [sys.executable, "-m", "blockserver.cli"]
    bootstrap_host = options.servers + 2

    def local(host: int, name: str) -> list[str]:
        listen = ["--host-maddrs", f"/ip4/{far.address(host)}/tcp/0", "--no-nat-port-map", "--no-relay"]
        return [*listen, "--ready-file", str(folder / name)]

    far.run(bootstrap_host, [*sepal, "bootstrap", *local(bootstrap_host, "boot")])
    peers = _ready(folder / "boot")["addresses"]
    blocks = json.loads((options.model / "config.json").read_text())["num_hidden_layers"]
    per_server = -(-blocks // options.servers)
    spans = [(at, min(at + per_server, blocks)) for at in range(0, blocks, per_server)]
    # The replica is of the last but one: a server amid the chain, which others push to and which pushes on.
    for host, (first, end) in enumerate([*spans, spans[-2]], 1):
        wanted = ["--block-indices", f"{first}:{end}", "--dtype", options.dtype, "--state-dir", str(folder / f"state{host}")]
        more = [*wanted, "--skip-reachability-check", "--update-period", "20", "--initial-peers", *peers]
        far.run(host, [*sepal, "serve", str(options.model), *more, *local(host, f"server{host}")])
    servers = [_ready(folder / f"server{host}") for host in range(1, len(spans) + 2)]
    return {"peers": peers, "servers": servers, "listen": f"/ip4/{far.address(0)}/tcp/0", "twins": [servers[-3], servers[-1]]}


def _ready(file: Path) -> dict[str, Any]:
    give_up = time.monotonic() + READY_WITHIN_S
    while not file.exists():
        if time.monotonic() > give_up:
            raise SystemExit(f"{file.name} did not become ready in {READY_WITHIN_S:.0f} s")
        time.sleep(0.1)
    said: dict[str, Any] = json.loads(file.read_text())
    return said


def table(figures: dict[str, Any]) -> str:
    rows = [
        ("delay made by", figures["delay"]),
        ("round trip, measured by the client, ms", f"{figures['round_trip_ms']:.1f}"),
        ("tokens/s, each step over the client", f"{figures['plain_tokens_per_s']:.2f}"),
        ("tokens/s, servers push", f"{figures['push_tokens_per_s']:.2f}"),
        (f"    ratio (target {TARGETS['push_ratio']})", f"{figures['push_ratio']:.2f}"),
        ("    floor, ms/token", f"{figures['floor_ms']:.0f}"),
        ("        ways", f"{figures['ways_ms']:.0f}"),
        ("        servers", f"{figures['servers_ms']:.0f}"),
        ("        client", f"{figures['client_ms']:.0f}"),
        ("    measured, ms/token", f"{figures['push_ms']:.0f}"),
        ("    measured / floor", f"{figures['over_floor']:.2f}"),
        ("tokens/s, repetitive text, no drafts", f"{figures['repetitive_tokens_per_s']:.2f}"),
        ("tokens/s, repetitive text, prompt lookup", f"{figures['drafts_tokens_per_s']:.2f}"),
        (f"    ratio (target {TARGETS['drafts_ratio']})", f"{figures['drafts_ratio']:.2f}"),
        (f"pause after kill -9, s (target below {TARGETS['pause_s']})", f"{figures['pause_s']:.2f}"),
        ("    same text", str(figures["same_text"])),
    ]
    return "\n".join(f"{name:<48} {value:>14}" for name, value in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="what distance costs a chain of servers")
    parser.add_argument("model", type=Path)
    parser.add_argument("--round-trip-ms", type=float, default=80.0)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--json", type=Path, help="where to write the figures, each run included")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts are taken down as well
    if options.servers < 2:
        parser.error("--servers: a chain has at least two")
    with tempfile.TemporaryDirectory() as folder, FarHosts(options.servers + 3, options.round_trip_ms / 2) as far:
        swarm = start(far, options, Path(folder))
        given = {"model": str(options.model), "tokens": options.tokens, "runs": options.runs, "dtype": options.dtype, **swarm}
        client = far.run(
            0,
            [sys.executable, "-m", "benchmarks.distance_client", json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=None,
            text=True,
        )
        said = client.communicate()[0]
        if client.returncode:
            raise SystemExit(client.returncode)
        figures = {"delay": far.method, "servers": options.servers, **json.loads(said.splitlines()[-1])}
    print(table(figures))
    print(json.dumps({key: value for key, value in figures.items() if key != "each_run"}))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
