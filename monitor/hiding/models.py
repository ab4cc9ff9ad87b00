"""Names and peers that the operator of the site hides, with the reason. Knows nothing of where they would be shown."""

from __future__ import annotations

import secrets
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from monitor.hiding.rules import HiddenList, name_key


class Kind(models.TextChoices):
    NAME = "name"
    PEER = "peer"


def new_alias() -> str:
    """Random, and kept: what stands for a hidden peer must be the same in all processes, and lead nowhere."""
    return f"hidden-{secrets.token_hex(6)}"


class Hidden(models.Model):
    """One name, wherever it appears, or one peer with everything that it says about itself."""

    kind = models.CharField(max_length=8, choices=Kind)
    value = models.CharField(max_length=128, help_text="The public name as it is written, or the whole peer id")
    alias = models.CharField(max_length=32, unique=True, default=new_alias, editable=False)
    reason = models.CharField(max_length=200, blank=True, help_text="For the site's operators only")
    since = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "hidden names and peers"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "value"], name="hidden_once"),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="hidden_kind_known"),
            models.CheckConstraint(condition=~Q(value=""), name="hidden_something"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.kind == Kind.NAME:
            self.value = name_key(self.value)
        super().save(*args, **kwargs)


def hidden_list() -> HiddenList:
    """As of now. One query."""
    rows = list(Hidden.objects.values_list("kind", "value", "alias"))
    return HiddenList(
        names=frozenset(value for kind, value, _ in rows if kind == Kind.NAME),
        peers={value: alias for kind, value, alias in rows if kind == Kind.PEER},
    )
