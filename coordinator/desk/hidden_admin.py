"""Names and peers that are not shown. What that does is the monitor's (`monitor.hiding`); here it is decided and audited."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from coordinator.desk.access import StaffMay, is_staff
from monitor import live
from monitor.hiding.models import Hidden, Kind
from monitor.swarms import configured
from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id


class HiddenForm(ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Hidden
        fields = ("kind", "value", "reason")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("kind") == Kind.PEER:
            try:
                cleaned["value"] = parse_peer_id(cleaned.get("value", "").strip())
            except BadRecord as error:
                self.add_error("value", forms.ValidationError(f"This is no peer id: {error.detail}."))
        return cleaned


@admin.register(Hidden)
class HiddenAdmin(StaffMay, ModelAdmin):
    """Shown again by deleting the entry, which the audit keeps."""

    form = HiddenForm
    may_add = True
    list_display: ClassVar = ["kind", "value", "reason", "since"]
    list_filter: ClassVar = ["kind"]
    search_fields: ClassVar = ["value", "reason"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_staff(request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        _tell()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        _tell()

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        super().delete_queryset(request, queryset)
        _tell()


def _tell() -> None:
    """Pages that are open must not go on showing whom we hide."""
    for swarm in configured():
        live.request_push(swarm.name)
