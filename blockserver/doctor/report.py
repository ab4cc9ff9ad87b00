"""Runs all checks and shows what they found: `mark name — fact — fix`, a summary, one next command. Exit code 3 on errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from blockserver.doctor import machine, network
from blockserver.doctor.code import code_of
from blockserver.doctor.facts import Facts
from blockserver.doctor.findings import MARKS, Finding, Level, Report, report
from blockserver.doctor.gather import gather
from blockserver.doctor.wishes import Wishes
from blockserver.running import EXIT_UNWELL

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    network.check_addresses,
    machine.check_gpu,
    machine.check_model,
    machine.check_memory,
    machine.check_folders,
    machine.check_identity,
    machine.check_open_files,
    network.check_internet,
    network.check_clock,
    network.check_bootstrap,
    network.check_prefix,
    network.check_version,
    network.check_site,
    network.check_port,
    network.check_token,
)
"""In the order in which things must be right: what comes first is healed first."""

_STYLES = {Level.OK: "green", Level.SKIPPED: "dim", Level.WARNING: "yellow", Level.ERROR: "red"}


def diagnose(facts: Facts) -> Report:
    findings = tuple(finding for check in CHECKS for finding in check(facts))
    return report(findings, when_well=f"sepal serve {facts.arguments}".rstrip())


def run_doctor(wishes: Wishes, *, as_json: bool) -> int:
    """The exit code."""
    found = diagnose(asyncio.run(gather(wishes)))
    if as_json:
        print(json.dumps(to_json(found), indent=2, ensure_ascii=False))  # noqa: T201
    else:
        show(found, Console(highlight=False, soft_wrap=True))
    return 0 if found.is_well else EXIT_UNWELL


def show(found: Report, console: Console) -> None:
    width = max(len(finding.name) for finding in found.findings)
    for finding in found.findings:
        line = Text.assemble((MARKS[finding.level], _STYLES[finding.level]), f" {finding.name:{width}}  {finding.fact}")
        console.print(line.append(f"  → {finding.fix}", style="bold") if finding.fix else line)
    console.print(f"{found.summary()}. Next: {found.next_command}")
    console.print(f"code for the site's page Help out: {code_of(found)}")


def to_json(found: Report) -> dict[str, object]:
    return {
        "well": found.is_well,
        "errors": found.count(Level.ERROR),
        "warnings": found.count(Level.WARNING),
        "next_command": found.next_command,
        "code": code_of(found),
        "findings": [
            {
                "name": one.name,
                "level": one.level.value,
                "fact": one.fact,
                "fix": one.fix or None,
                "command": one.command or None,
            }
            for one in found.findings
        ],
    }
