"""Rates, answers and canaries in words, for the model's page. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.rates.facts import CanaryFacts, Told
from monitor.times import Moment
from swarm.answers.judging import Finding, Standing
from swarm.throughput import Basis, Belief
from swarm.wire.spans import in_words, runs


def counted(belief: Belief | None) -> str:
    """`counts as 104 tok/s`; empty where nothing differs from the report."""
    if belief is None or belief.believed is None or belief.basis in (Basis.REPORTED, Basis.UNKNOWN):
        return ""
    if belief.reported is not None and belief.believed >= 0.995 * belief.reported:
        return ""
    return f"counts as {belief.believed:,.{0 if belief.believed >= 10 else 1}f} tok/s"


def of_rate(belief: Belief | None) -> str:
    """The same with the reason: `counts as 104 tok/s: measured at 83.2 tokens/s`."""
    short = counted(belief)
    return f"{short}: {belief.reason}" if short and belief is not None else ""


def of_clients(told: Told | None) -> str:
    if told is None or not told.failures:
        return ""
    of = "1 client says" if told.witnesses == 1 else f"{told.witnesses} clients say"
    return f"{of} that {told.failures} of {told.requests} requests failed"


def of_doubt(finding: Finding) -> str:
    """What speaks against a server's answers; empty where nothing does: `its answer for block 7 differs from that of 2 others
    who agree`."""
    if finding.standing is Standing.WRONG:
        again = f", {finding.times} times in a row" if finding.times > 1 else ""
        return f"its answer {finding.wrong}{again}"
    if finding.standing is not Standing.DIFFERS:
        return ""
    where = "all its blocks" if finding.whole else finding.blocks.in_words()
    return f"its answer for {where} differs from that of {finding.against} others who agree with each other"


def of_dispute(findings: Iterable[Finding]) -> str:
    """Of a model's servers: `servers differ on block 7, and it cannot be told which of them are right`."""
    spans = runs(block for finding in findings if finding.standing is Standing.DISPUTED for block in finding.blocks)
    return (
        f"servers give different answers for {in_words(spans)}, and it cannot be told which of them are right" if spans else ""
    )


def of_canary(canary: CanaryFacts | None, now: float) -> str:
    """One sentence; empty where no canary runs."""
    if canary is None:
        return ""
    when = f"{Moment(canary.at, now).ago} ago"
    through = f" by servers {', '.join(f'…{peer[-6:]}' for peer in canary.peers)}" if canary.peers else ""
    basis = "the answer that most runs gave" if canary.trusted_by == "majority" else "the answer that is configured"
    if canary.outcome == "expected":
        return f"Canary: answered as expected {when}{through} (compared with {basis})."
    if canary.outcome == "unexpected":
        return f"Canary: the answer {when} was not the expected one{through} (compared with {basis})."
    return f"Canary: no answer {when}: {canary.detail or 'the reason is not known'}"
