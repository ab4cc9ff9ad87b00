"""A finding is one line: a mark, a name, a fact, and where something is wrong a fix and one command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    ERROR = "error"


MARKS = {Level.OK: "✓", Level.SKIPPED: "–", Level.WARNING: "!", Level.ERROR: "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    level: Level
    fact: str
    fix: str = ""
    command: str = ""


def ok(name: str, fact: str) -> Finding:
    return Finding(name, Level.OK, fact)


def skipped(name: str, fact: str) -> Finding:
    return Finding(name, Level.SKIPPED, fact)


def warning(name: str, fact: str, fix: str, command: str) -> Finding:
    return Finding(name, Level.WARNING, fact, fix, command)


def error(name: str, fact: str, fix: str, command: str) -> Finding:
    return Finding(name, Level.ERROR, fact, fix, command)


@dataclass(frozen=True, slots=True)
class Report:
    """`next_command` heals the first error, or the first warning; with neither it is the one that serves."""

    findings: tuple[Finding, ...]
    next_command: str

    def count(self, level: Level) -> int:
        return sum(finding.level is level for finding in self.findings)

    @property
    def is_well(self) -> bool:
        return not self.count(Level.ERROR)

    def summary(self) -> str:
        errors, warnings = self.count(Level.ERROR), self.count(Level.WARNING)
        if not errors and not warnings:
            return "nothing is wrong"
        counts = ((errors, "error"), (warnings, "warning"))
        return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count)


def report(findings: tuple[Finding, ...], when_well: str) -> Report:
    for level in (Level.ERROR, Level.WARNING):
        for finding in findings:
            if finding.level is level:
                return Report(findings, finding.command)
    return Report(findings, when_well)
