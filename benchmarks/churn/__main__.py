"""Records a swarm that comes and goes, and what the monitor saw of it, as tests/data/churn/README.md says.

    python -m benchmarks.churn FILE [--minutes 17] [--interval 5] [--seed 1]

Starts a DHT of two bootstrap peers and eight block servers with a tiny model, each a process of its own on loopback, a
database, and the monitor's own crawler. Takes 5 GB of memory and as long as it is told, and a minute.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.churn.plan import BLOCKS, BOOTSTRAPS, CRAWLER, FIRST_SPANS, FREE, Act, Step, plan
from coordinator.launch.run_folder import locked
from coordinator.launch.services import running
from coordinator.launch.supervisor import Supervisor, supervising

if TYPE_CHECKING:
    from benchmarks.churn.swarm import Swarm
    from benchmarks.churn.watching import FaultyCrawler

SWARM = "main"
LOOK_EVERY_S = 0.1
READY_WITHIN_S = 180.0


def record(file: Path, minutes: float, interval_s: float, seed: int) -> None:
    from benchmarks.churn.lines import Lines
    from benchmarks.churn.swarm import Swarm
    from benchmarks.churn.watching import FaultyCrawler, Watching
    from tests.tiny_models import save_tiny_model

    with tempfile.TemporaryDirectory() as place, locked(Path(place, "run")) as folder, supervising(folder) as supervisor:
        model = Path(place, "tiny")
        save_tiny_model(model)
        lines = Lines(file, blocks=BLOCKS, interval_s=interval_s, seed=seed, minutes=minutes)
        swarm = Swarm(supervisor, folder, model, lines)
        for name in BOOTSTRAPS:
            _start(supervisor, swarm, (name,))
        crawler = FaultyCrawler(tuple(swarm.addresses.values()), lines, random.Random(seed))
        watching = Watching(SWARM, crawler, lines, interval_s)
        _start(supervisor, swarm, tuple(FIRST_SPANS))
        watching.start()
        try:
            _start(supervisor, swarm, FREE)
            _follow(plan(seed, 60.0 * minutes), 60.0 * minutes, swarm, crawler)
        finally:
            watching.end()
            crawler.stop()
            swarm.thaw_all()
            lines.close()


def _start(supervisor: Supervisor, swarm: Swarm, names: tuple[str, ...]) -> None:
    for name in names:
        swarm.do(Step(0.0, Act.START, name, FIRST_SPANS.get(name)))
    supervisor.wait(", ".join(names), lambda: swarm.all_ready(names) or None, READY_WITHIN_S, each_poll=swarm.look)


def _follow(steps: list[Step], length_s: float, swarm: Swarm, crawler: FaultyCrawler) -> None:
    begun = time.monotonic()
    while (now := time.monotonic() - begun) < length_s:
        while steps and steps[0].at <= now:
            step = steps.pop(0)
            if step.who == CRAWLER:
                crawler.suffer(step)
            else:
                swarm.do(step)
        swarm.look()
        time.sleep(LOOK_EVERY_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=17.0)
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two crawls")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if not given.file.parent.is_dir():
        parser.error(f"{given.file.parent}: no such folder; make it, or name another file")
    if given.minutes <= 0 or given.interval <= 0:
        parser.error("--minutes and --interval: more than 0")
    with running() as (database_url, redis_url):
        os.environ |= {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "SEPAL_CRAWL_INTERVAL_S": f"{given.interval:g}"}
        os.environ |= {"DJANGO_SETTINGS_MODULE": "coordinator.settings"}
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        record(given.file, given.minutes, given.interval, given.seed)
    print(f"{given.file}: {given.file.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
