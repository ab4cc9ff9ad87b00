"""How late and how heavy the site's pages are.

    python -m benchmarks.live loss [--runs 20] [--gap 5] [--json FILE]      from a server's end to the change on an open page
    python -m benchmarks.live sockets [--sockets 500 2000] [--servers 1 2] [--rounds 5]   from commit to message and to DOM
    python -m benchmarks.live weight                                        against health.petals.dev's page

Each makes its own database, site and swarm on loopback, and needs Chromium. Prints a table, and JSON on the last line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.live import loss, sockets, weight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    made = kinds.add_parser("loss")
    made.add_argument("--runs", type=int, default=20, help="ends of each kind")
    made.add_argument("--gap", type=float, default=5.0, help="seconds between two ends; they overlap")
    made.add_argument("--interval", type=float, default=30.0, help="seconds between two crawls; 30 is the default of a site")
    made.set_defaults(measure=lambda asked: loss.measure(asked.runs, asked.gap, asked.interval))
    made = kinds.add_parser("sockets")
    made.add_argument("--sockets", type=int, nargs="+", default=[500, 2_000])
    made.add_argument("--servers", type=int, nargs="+", default=[1, 2], help="web processes")
    made.add_argument("--rounds", type=int, default=5)
    made.set_defaults(measure=lambda asked: sockets.measure(asked.sockets, asked.servers, asked.rounds))
    made = kinds.add_parser("weight")
    made.set_defaults(measure=lambda asked: weight.measure())
    for each in kinds.choices.values():
        each.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    run(arguments.measure, arguments)


def run(measure: Callable[[Any], Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    figures = measure(arguments)
    for name, value in figures.items():
        if not isinstance(value, (list, dict)):
            print(f"{name:44} {value:,.2f}" if isinstance(value, float) else f"{name:44} {value}")
    print(json.dumps(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
