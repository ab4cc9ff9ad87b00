"""Lists and forms of what the staff decides. Each change is written down and takes effect at once; nothing is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from coordinator.desk import decisions
from coordinator.desk.access import StaffMay
from coordinator.desk.models import Banner, Kind, Maintenance, Quarantine, Ruling
from swarm.errors import BadRecord
from swarm.wire.keys import parse_peer_id, parse_prefix

LONGEST = {Kind.QUARANTINE: timedelta(days=30), Kind.MAINTENANCE: timedelta(days=14), Kind.BANNER: timedelta(days=90)}
"""What should hold for longer than this is decided again: a forgotten ruling is worse than a repeated one."""


class RulingForm(ModelForm):  # type: ignore[type-arg]
    """`kind` is what this form makes; what a subject is depends on it."""

    kind: ClassVar[Kind]
    # Not the table's words: they say what is public.
    words = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget, label="Why, in words that everyone may read")

    class Meta:
        model = Ruling
        fields = ("swarm", "subject", "words", "starts_at", "ends_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "swarm" in self.fields:
            names = [(swarm["name"], swarm["label"]) for swarm in settings.SEPAL_SWARMS]
            choices = [("", "every swarm of this site"), *names]
            self.fields["swarm"] = forms.ChoiceField(choices=choices, required=False, widget=UnfoldAdminSelectWidget)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "subject" in cleaned:
            cleaned["subject"] = self._checked(cleaned["subject"].strip())
        starts, ends = cleaned.get("starts_at") or self.instance.starts_at, cleaned.get("ends_at")
        if starts and ends and ends <= starts:
            self.add_error("ends_at", "The end lies before the start.")
        elif starts and ends and ends - starts > LONGEST[self.kind]:
            self.add_error("ends_at", f"At most {LONGEST[self.kind].days} days; decide again if it must hold on.")
        return cleaned

    def _checked(self, subject: str) -> str:
        try:
            if self.kind is Kind.QUARANTINE:
                return parse_peer_id(subject)
            return parse_prefix(subject) if subject else ""
        except BadRecord as error:
            self.add_error("subject", f"This does not read as it should: {error.detail}.")
        return subject


class RulingAdmin(StaffMay, ModelAdmin):
    """`subject_words` is what the subject is called; empty where there is none."""

    form_class: ClassVar[type[RulingForm]]
    subject_words = ""
    may_add = may_change = True
    actions: ClassVar = ["end_now"]
    search_fields: ClassVar = ["subject", "words"]
    list_filter_submit = False
    ordering: ClassVar = ["-starts_at", "-pk"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Ruling]:
        kept: QuerySet[Ruling] = super().get_queryset(request).filter(kind=self.form_class.kind).select_related("made_by")
        return kept

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        kwargs["form"] = self.form_class
        form = super().get_form(request, obj, change, **kwargs)
        if "subject" in form.base_fields:
            form.base_fields["subject"].label = self.subject_words
        if obj is None and "starts_at" in form.base_fields:
            form.base_fields["starts_at"].initial = decisions.now().replace(microsecond=0)
        return form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        swarm = [] if self.form_class.kind is Kind.BANNER else ["swarm"]
        subject = ["subject"] if self.subject_words else []
        made = ["made_by", "made_at"] if obj else []
        return [*swarm, *subject, "words", "starts_at", "ends_at", *made]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """On whom and from when is part of what was decided; another subject is another ruling."""
        return ["swarm", "subject", "starts_at", "made_by", "made_at"] if obj else ["made_by", "made_at"]

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*(["subject"] if self.subject_words else []), "words", "now_in_force", "starts_at", "ends_at", "made_by"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        now = decisions.now()
        if not change:
            obj.made_by, obj.made_at = request.user, now
            obj.kind = self.form_class.kind.value
        super().save_model(request, obj, form, change)
        decisions.take_effect(obj, now)

    @admin.display(description="In force", boolean=True)
    def now_in_force(self, ruling: Ruling) -> bool:
        now: datetime = decisions.now()
        return ruling.starts_at <= now < ruling.ends_at

    @action(description="End now")
    def end_now(self, request: HttpRequest, queryset: QuerySet[Ruling]) -> None:
        ended = sum(decisions.end(ruling, request.user, decisions.now()) for ruling in queryset)
        self.message_user(request, f"{ended} ended." if ended else "These had ended already.")


class _QuarantineForm(RulingForm):
    kind = Kind.QUARANTINE


class _MaintenanceForm(RulingForm):
    kind = Kind.MAINTENANCE


class _BannerForm(RulingForm):
    kind = Kind.BANNER


@admin.register(Quarantine)
class QuarantineAdmin(RulingAdmin):
    form_class = _QuarantineForm
    subject_words = "Peer id"


@admin.register(Maintenance)
class MaintenanceAdmin(RulingAdmin):
    form_class = _MaintenanceForm
    subject_words = "Model's prefix; empty for every model"


@admin.register(Banner)
class BannerAdmin(RulingAdmin):
    form_class = _BannerForm
