"""How much each model is wanted. What that does is `coordinator.demand`'s; here the staff decides it, and it is audited."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from coordinator.desk.access import StaffMay, is_staff
from coordinator.models import Importance
from swarm.errors import BadRecord
from swarm.wire.keys import parse_prefix


class ImportanceForm(ModelForm):  # type: ignore[type-arg]
    words = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget, label="Why")

    class Meta:
        model = Importance
        fields = ("swarm", "prefix", "weight", "words")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [(swarm["name"], swarm["label"]) for swarm in settings.SEPAL_SWARMS]
        choices = [("", "every swarm of this site"), *names]
        self.fields["swarm"] = forms.ChoiceField(choices=choices, required=False, widget=UnfoldAdminSelectWidget)

    def clean_prefix(self) -> str:
        try:
            return parse_prefix(str(self.cleaned_data["prefix"]).strip())
        except BadRecord as error:
            raise forms.ValidationError(f"This is no model's prefix: {error.detail}.") from error

    def clean_weight(self) -> float:
        weight = float(self.cleaned_data["weight"])
        if not 0 <= weight <= 100:
            raise forms.ValidationError("A number from 0, for never, to 100.")
        return weight


@admin.register(Importance)
class ImportanceAdmin(StaffMay, ModelAdmin):
    """A model that is taken from the list counts as 1 again; the audit keeps what was set."""

    form = ImportanceForm
    may_add = may_change = True
    list_display: ClassVar = ["prefix", "weight", "words", "swarm"]
    search_fields: ClassVar = ["prefix", "words"]
    ordering: ClassVar = ["-weight", "prefix"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_staff(request)
