"""Many block servers for little memory: forked from one process that has imported everything, each serving one block.

    python -m benchmarks.live.forks MODEL COUNT BOOTSTRAP FOLDER

Prints their process ids by block once all are online, and ends them when its input is closed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from blockserver.config import ServeConfig
from blockserver.running import run_until_stopped
from blockserver.serving.server import serve
from swarm.dht.addresses import parse_peer_addresses
from swarm.wire.spans import Span

AT_ONCE = 6
READY_S = 600.0


def main(model: Path, count: int, bootstrap: str, folder: Path) -> None:
    pids: list[int] = []
    for block in range(count):
        pids.append(_fork(model, block, bootstrap, folder))
        _wait(folder, max(0, block + 1 - AT_ONCE))
    _wait(folder, count)
    print(json.dumps(pids), flush=True)
    sys.stdin.read()
    for pid in pids:
        _end(pid)


def _fork(model: Path, block: int, bootstrap: str, folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.dup2(os.open(folder / f"server-{block}.log", os.O_CREAT | os.O_WRONLY), 2)
    os.dup2(2, 1)
    config = ServeConfig(
        model=model,
        initial_peers=parse_peer_addresses([bootstrap]),
        block_indices=Span(block, block + 1),
        listen=("/ip4/127.0.0.1/tcp/0",),
        port_mapping=False,
        relay=False,
        dtype="float32",
        cache_tokens=64,
        throughput=100.0,
        check_reachability=False,
        state_dir=folder / f"state-{block}",
        ready_file=folder / f"ready-{block}.json",
    )
    os._exit(run_until_stopped(lambda stop: serve(config, stop)))


def _wait(folder: Path, count: int) -> None:
    deadline = time.monotonic() + READY_S
    while not all((folder / f"ready-{block}.json").exists() for block in range(count)):
        if time.monotonic() > deadline:
            sys.exit("the servers do not come online; see server-*.log")
        time.sleep(0.1)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return  # one of those that were ended on purpose


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
