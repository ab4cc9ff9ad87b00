"""Rates and canaries in words, for the model's page. Pure."""

from __future__ import annotations

from monitor.rates.facts import CanaryFacts, Told
from monitor.times import Moment
from swarm.throughput import Basis, Belief


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
