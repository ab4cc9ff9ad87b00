"""The planner against Petals' rule on the same simulated churn: bottleneck, availability, moves, repairs, liars, compliance.

    python -m benchmarks.swarm_sim [--figures 20x80,liars] [--seeds 6] [--first-seed 1] [--json FILE] [--list]

Everything is paired: each arm lives through the same sessions. Prints means, and differences from the first arm with 95 %
intervals (Student's t over seeds). `benchmarks/sim/` is the simulator; the planner in it is the product's own.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.sim.arms import play
from benchmarks.sim.traces import Scene

COLUMNS = ("available", "bottleneck", "doubled", "moves", "outages", "movers_per_hole", "repair_s")
PAIRED = ("available", "bottleneck", "moves")
# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
STUDENT = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13),
    *(2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04),
)

Run = tuple[str, Scene, str]
"""A name for the row, what happens, and who decides."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Runs on the same traces; the first is what the others are compared with."""

    question: str
    runs: tuple[Run, ...]


def against_petals(question: str, scene: Scene, belief: str = "measured") -> Figure:
    """The planner as the coordinator runs it: counting on what it measures, not on what is reported."""
    return Figure(question, (("Petals", scene, "petals"), ("planner", scene, belief)))


def _liars(scene: Scene) -> Figure:
    lying = replace(scene, liars=0.05)
    runs = (
        ("honest", scene, "reported"),
        ("liars, believed", lying, "reported"),
        ("liars, guarded", lying, "guarded"),
        ("liars, measured", lying, "measured"),
        ("honest, measured", scene, "measured"),
        ("liars, Petals", lying, "petals"),
    )
    return Figure("5 % of servers report ten times their throughput", runs)


def _evaders(scene: Scene) -> Figure:
    lying = replace(scene, liars=0.05, evades=True)
    runs = (
        ("honest, measured", scene, "measured"),
        ("evaders, measured", lying, "measured"),
        ("liars, measured", replace(lying, evades=False), "measured"),
        ("evaders, guarded", lying, "guarded"),
    )
    return Figure("5 % of servers report ten times their throughput, and are busy whenever they are to be measured", runs)


LARGE = Scene(100, 126, days=0.75)
FIGURES = {
    "20x80": against_petals("20 servers, 80 blocks: plenty", Scene(20, 80, days=2)),
    "20x126": against_petals("20 servers, 126 blocks: scarce", Scene(20, 126, days=2)),
    "100x126": against_petals("100 servers, 126 blocks", LARGE),
    "500x80": against_petals("500 servers, 80 blocks: rich", Scene(500, 80, days=0.25)),
    "kills": against_petals("all holders of a block crash, 100 servers, 126 blocks", replace(LARGE, kill_every_h=3)),
    "kills80": against_petals(
        "all holders of a block crash, 100 servers, 80 blocks", Scene(100, 80, days=0.75, kill_every_h=3)
    ),
    "liars": _liars(LARGE),
    "evaders": _evaders(LARGE),
    "quarter": against_petals("a quarter follows hints, the rest is Petals", replace(LARGE, follows=0.25)),
    "outage": against_petals("the coordinator is down 6 hours of 18", replace(LARGE, outage_h=6)),
    "outage-kills": against_petals(
        "the coordinator is down 6 hours of 12, and every hour all holders of a block crash",
        replace(LARGE, days=0.5, outage_h=6, kill_every_h=1),
    ),
    "alone": against_petals("there never was a coordinator", LARGE, "alone"),
    "slow": against_petals("loads take three times as long", replace(LARGE, load_factor=3)),
    "nights": against_petals(
        "day and night, and sites that fail at once", replace(LARGE, diurnal=0.5, site_failures_per_day=3)
    ),
}


def measure(figure: Figure, seeds: Sequence[int]) -> dict[str, list[dict[str, float]]]:
    return {name: [play(scene, seed, arm) for seed in seeds] for name, scene, arm in figure.runs}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval; of fewer than two values there is none."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return (known[0] if known else math.nan), math.nan
    quantile = STUDENT[min(len(known) - 1, len(STUDENT)) - 1]
    return statistics.mean(known), quantile * statistics.stdev(known) / math.sqrt(len(known))


def report(name: str, figure: Figure, results: dict[str, list[dict[str, float]]], seeds: Sequence[int]) -> dict[str, object]:
    print(f"\n{name}: {figure.question} (seeds {seeds[0]} to {seeds[-1]}, {figure.runs[0][1].days:g} days each)")
    print(f"  {'':<18}" + "".join(f"{column:>20}" for column in COLUMNS))
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for row, values in results.items():
        rows[row] = {column: interval([value[column] for value in values]) for column in COLUMNS}
        print(f"  {row:<18}" + "".join(f"{_cell(*rows[row][column]):>20}" for column in COLUMNS))
    first, *others = results
    differences: dict[str, dict[str, tuple[float, float]]] = {}
    for row in others:
        pairs = list(zip(results[row], results[first], strict=True))
        differences[row] = {column: interval([a[column] - b[column] for a, b in pairs]) for column in PAIRED}
        words = ", ".join(f"{column} {mean:+.4f} ±{half:.4f}" for column, (mean, half) in differences[row].items())
        print(f"  {row} minus {first}: {words}", flush=True)
    return {"question": figure.question, "seeds": list(seeds), "rows": rows, "differences": differences, "runs": results}


def _cell(mean: float, half: float) -> str:
    return "–" if math.isnan(mean) else f"{mean:.4g} ±{half:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--figures", default=",".join(FIGURES), help="which, by name, separated by commas")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true", help="say which figures there are, and stop")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:<10} {figure.question}" for name, figure in FIGURES.items()))
        return
    wanted = options.figures.split(",")
    unknown = [name for name in wanted if name not in FIGURES]
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)}; --list says which there are")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    answers: dict[str, object] = {}
    for name in wanted:
        answers[name] = report(name, FIGURES[name], measure(FIGURES[name], seeds), seeds)
        if options.json:
            options.json.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
