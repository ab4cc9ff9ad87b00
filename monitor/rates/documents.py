"""Rates and canaries in the public JSON: the reported figure stays what it is, beside it what is believed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitor.published import Published, rfc3339
from monitor.rates.facts import CanaryFacts
from monitor.rates.words import of_doubt
from swarm.answers.judging import Finding
from swarm.throughput import Belief


def rate_fields(published: Published, prefix: str, peer_id: str, believed: Mapping[str, Belief]) -> dict[str, Any]:
    """Null where not known: nobody has measured it, no client told of it, or it does not serve now."""
    belief, known = believed.get(peer_id), published.evidence.get((prefix, peer_id))
    told = published.told.get((prefix, peer_id))
    return {
        "believed_tokens_per_second": belief.believed if belief else None,
        "belief": {"basis": belief.basis.value, "reason": belief.reason} if belief else None,
        "measured_tokens_per_second": known.rate if known else None,
        "answers": answers_document(published.answers.get((prefix, peer_id))),
        "clients": {"witnesses": told.witnesses, "requests": told.requests, "failures": told.failures} if told else None,
    }


def answers_document(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return {
        "standing": finding.standing.value,
        "blocks": [finding.blocks.start, finding.blocks.end],
        "against": finding.against,
        "words": of_doubt(finding) or None,
    }


def canary_document(canary: CanaryFacts | None) -> dict[str, Any] | None:
    if canary is None:
        return None
    return {
        "outcome": canary.outcome,
        "at": rfc3339(canary.at),
        "servers": list(canary.peers),
        "trusted_by": canary.trusted_by,
        "detail": canary.detail or None,
        "seconds": canary.seconds,
    }
