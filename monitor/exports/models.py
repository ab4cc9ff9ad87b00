"""Days that were exported. A row is written once; what it holds is what everyone may read."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q


class Export(models.Model):
    """One UTC day of all swarms, as gzipped NDJSON. In the database, where every web process finds it: a busy day of
    5,000 servers is about a megabyte."""

    day = models.DateField(primary_key=True)
    made_at = models.DateTimeField()
    lines = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="Bytes, compressed")
    sha256 = models.CharField(max_length=64)
    body = models.BinaryField()

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(lines__gte=1, size__gte=1), name="export_not_empty")]

    def __str__(self) -> str:
        return f"{self.day}"
