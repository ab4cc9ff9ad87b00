"""From launch to ONLINE, and the most memory a server takes: `sepal serve` with ten blocks, files warm in the page cache.

    python -m benchmarks.launch MODEL_DIR [--blocks 10] [--runs 3] [--json FILE]

The limit for memory is 1.3 times the weights, plus the cache budget, plus what the imports alone take, measured beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blockserver.model.facts import read_facts

LOCAL = ["--host-maddrs", "/ip4/127.0.0.1/tcp/0", "--no-nat-port-map", "--no-relay"]
CACHE_TOKENS = 4096
IMPORTS = "import blockserver.serving.server"


def peak_bytes(pid: int) -> int:
    """The most resident memory so far; file-mapped weights count as well."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


@contextmanager
def started(command: list[str], ready: Path, limit_s: float = 120.0) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The process and the seconds until its ready file was there."""
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not ready.exists():
                if process.poll() is not None or time.monotonic() - begun > limit_s:
                    raise SystemExit(f"not ready: {' '.join(command)}")
                time.sleep(0.02)
            yield process, time.monotonic() - begun
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def imports_bytes() -> int:
    program = f"{IMPORTS}\nprint(open('/proc/self/status').read())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    found = re.search(r"VmHWM:\s+(\d+) kB", said)
    assert found
    return int(found[1]) * 1024


def measure(model: Path, blocks: int, runs: int) -> dict[str, object]:
    facts = read_facts(model)
    sepal = [sys.executable, "-m", "blockserver.cli"]
    seconds: list[float] = []
    peaks: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        boot = Path(folder, "boot.json")
        with started([*sepal, "bootstrap", *LOCAL, "--ready-file", str(boot)], boot):
            address = json.loads(boot.read_text())["addresses"][0]
            for run in range(runs):
                ready = Path(folder, f"{run}.json")
                wanted = ["--num-blocks", str(blocks), "--cache-tokens", str(CACHE_TOKENS), "--ready-file", str(ready)]
                command = [*sepal, "serve", str(model), "--initial-peers", address, *LOCAL, *wanted]
                with started(command, ready) as (process, took):
                    seconds.append(took)
                    peaks.append(peak_bytes(process.pid))
    weights = facts.bytes_per_block(facts.dtype) * blocks
    cache = CACHE_TOKENS * blocks * facts.cache_bytes_per_token(facts.dtype)
    imports = imports_bytes()
    return {
        "blocks": blocks,
        "runs": runs,
        "seconds_to_online": seconds,
        "median_s": statistics.median(seconds),
        "peak_bytes": max(peaks),
        "weights_bytes": weights,
        "cache_bytes": cache,
        "imports_bytes": imports,
        "limit_bytes": int(1.3 * weights + cache + imports),
        "peak_over_limit": max(peaks) / (1.3 * weights + cache + imports),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = measure(arguments.model, arguments.blocks, arguments.runs)
    for name, value in figures.items():
        print(
            f"{name:20} {value / 1e6:,.0f} MB" if name.endswith("_bytes") and isinstance(value, int) else f"{name:20} {value}"
        )
    print(json.dumps(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
