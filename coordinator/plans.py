"""The number of a model's plan. Two questions that get the same number were answered on the same swarm and the same leases."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from django.db.models import F

from coordinator.models import Lease, Plan
from swarm.snapshot import Model


def current_version(swarm: str, model: Model) -> int:
    """Moves on by one where anything differs from what the last number stood for."""
    fingerprint = fingerprint_of(model, Lease.objects.touching(swarm, model.prefix).open())
    plan, _ = Plan.objects.get_or_create(swarm=swarm, prefix=model.prefix, defaults={"fingerprint": fingerprint})
    # Conditional, so that of two processes that see the same change one counts it.
    Plan.objects.filter(pk=plan.pk, fingerprint=plan.fingerprint).exclude(fingerprint=fingerprint).update(
        version=F("version") + 1, fingerprint=fingerprint
    )
    return Plan.objects.values_list("version", flat=True).get(pk=plan.pk)


def fingerprint_of(model: Model, open_leases: Iterable[Lease]) -> str:
    """Who holds what, what could not be read, what is promised; not the order of records, and no rates, which always move."""
    seen = sorted(f"{server.peer_id} {server.span} {server.state}" for server in model.servers)
    promised = sorted(f"{lease.pk} {lease.span}" for lease in open_leases)
    facts = "\n".join([str(model.num_blocks), repr(sorted(model.unread_blocks)), *seen, "--", *promised])
    return hashlib.sha256(facts.encode()).hexdigest()
