"""The report as the code that the site's wizard explains. Pure."""

from __future__ import annotations

from blockserver.doctor.findings import Level, Report
from swarm.wire.doctor import Mark, encode

_MARKS = {Level.OK: Mark.RIGHT, Level.SKIPPED: Mark.UNCHECKED, Level.WARNING: Mark.WARNING, Level.ERROR: Mark.ERROR}


def code_of(report: Report) -> str:
    """Of several findings with one name the worst counts."""
    marks: dict[str, Mark] = {}
    for finding in report.findings:
        marks[finding.name] = max(marks.get(finding.name, Mark.UNCHECKED), _MARKS[finding.level])
    return encode(marks)
