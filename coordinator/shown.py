"""Leases as people are shown them: without the ids of peers that are hidden. To be read, and not to be saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.db.models import QuerySet
from django.db.models.query import ModelIterable

from coordinator.models import Lease
from monitor.hiding.models import hidden_list
from monitor.hiding.rules import HiddenList

SPOKEN = ("peer_id", "reason", "close_reason", "inputs")


if TYPE_CHECKING:
    _Rows = ModelIterable[Lease]
else:
    _Rows = ModelIterable


class _Shown(_Rows):
    def __iter__(self) -> Iterator[Lease]:
        rows = list(super().__iter__())
        hidden = hidden_list() if rows else HiddenList()
        for lease in rows:
            for name in SPOKEN:
                # What was deferred is not fetched for this.
                if name in lease.__dict__:
                    setattr(lease, name, hidden.scrubbed(getattr(lease, name)))
            yield lease


def shown(leases: QuerySet[Lease]) -> QuerySet[Lease]:
    leases = leases.all()
    leases._iterable_class = _Shown
    return leases
