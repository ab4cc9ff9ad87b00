"""Lists of what the site has seen and done: crawls, hints, incidents with the staff's notes, the audit, people."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from coordinator.desk import decisions
from coordinator.desk.access import StaffMay
from coordinator.desk.models import IncidentNote
from coordinator.models import Lease
from monitor.history import words
from monitor.history.models import Incident
from monitor.models import Crawl
from swarm.wire.spans import in_words, runs


@admin.register(Crawl)
class CrawlAdmin(StaffMay, ModelAdmin):
    list_display: ClassVar = ["started_at", "swarm", "outcome", "took", "bootstraps_up", "keys_unread", "left_out", "why"]
    list_filter: ClassVar = ["outcome", "swarm", "suspicion"]
    ordering: ClassVar = ["-started_at"]
    list_per_page = 50
    show_full_result_count = False

    @admin.display(description="Took")
    def took(self, crawl: Crawl) -> str:
        return f"{crawl.duration_s:.1f} s"

    @admin.display(description="Bootstrap peers")
    def bootstraps_up(self, crawl: Crawl) -> str:
        return f"{sum(map(bool, crawl.bootstraps.values()))} of {len(crawl.bootstraps)}"

    @admin.display(description="Records left out")
    def left_out(self, crawl: Crawl) -> str:
        return ", ".join(f"{count} {reason}" for reason, count in sorted(crawl.dropped_counts.items())) or "none"

    @admin.display(description="Why")
    def why(self, crawl: Crawl) -> str:
        doubt = f"{crawl.suspicion}: " if crawl.suspicion else ""
        return f"{doubt}{crawl.reason or crawl.confirmed}" or "–"


@admin.register(Lease)
class LeaseAdmin(StaffMay, ModelAdmin):
    list_display: ClassVar = ["created_at", "prefix", "server", "blocks", "reason", "result", "explained"]
    list_display_links = None
    list_filter: ClassVar = ["phase", "urgency", "prefix"]
    search_fields: ClassVar = ["peer_id"]
    ordering: ClassVar = ["-created_at"]
    list_per_page = 50
    show_full_result_count = False

    @admin.display(description="Server")
    def server(self, lease: Lease) -> str:
        return f"…{lease.peer_id[-6:]}"

    @admin.display(description="Asked to serve")
    def blocks(self, lease: Lease) -> str:
        return f"{lease.goal_words}, instead of {lease.origin_words}" if lease.is_transfer else lease.goal_words

    @admin.display(description="Outcome")
    def result(self, lease: Lease) -> str:
        return str(lease.outcome.value)

    @admin.display(description="")
    def explained(self, lease: Lease) -> str:
        return format_html('<a href="{}">Explain</a>', reverse("admin:explained", args=[lease.pk]))


class NoteInline(TabularInline):
    model = IncidentNote
    fields: ClassVar = ["words", "made_by", "made_at"]
    readonly_fields: ClassVar = ["made_by", "made_at"]
    extra = 1

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_staff)

    has_add_permission = has_view_permission

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_delete_permission = has_change_permission


@admin.register(Incident)
class IncidentAdmin(StaffMay, ModelAdmin):
    may_change = True
    list_display: ClassVar = ["title", "kind", "started_before", "ended_before", "confirmed", "noted"]
    list_filter: ClassVar = ["kind", "swarm"]
    ordering: ClassVar = ["-pk"]
    inlines: ClassVar = [NoteInline]
    fields: ClassVar = ["title", "swarm", "kind", "started_before", "ended_before", "which", "reason", "public"]
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("model").prefetch_related("notes")

    @admin.display(description="What")
    def title(self, incident: Incident) -> str:
        return words.title(incident)

    @admin.display(description="Confirmed", boolean=True)
    def confirmed(self, incident: Incident) -> bool:
        return incident.confirmed_at is not None

    @admin.display(description="Notes")
    def noted(self, incident: Incident) -> int:
        return len(incident.notes.all())

    @admin.display(description="Blocks")
    def which(self, incident: Incident) -> str:
        return in_words(runs(incident.blocks)) if incident.blocks else "none"

    @admin.display(description="Public page")
    def public(self, incident: Incident) -> str:
        if incident.confirmed_at is None:
            return "none until it is confirmed"
        return format_html('<a href="{0}">{0}</a>', reverse("incident", args=[incident.pk]))

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        for note in formset.save(commit=False):
            note.made_by, note.made_at = request.user, decisions.now()
            note.save()
        formset.save_m2m()


@admin.register(LogEntry)
class AuditAdmin(StaffMay, ModelAdmin):
    """Who did what, when. Written by the admin itself; nobody can change it here."""

    list_display: ClassVar = ["action_time", "user", "content_type", "object_repr", "what"]
    list_display_links = None
    list_filter: ClassVar = ["user", "content_type", "action_flag"]
    search_fields: ClassVar = ["object_repr", "change_message"]
    ordering: ClassVar = ["-action_time"]

    @admin.display(description="What")
    def what(self, entry: LogEntry) -> str:
        return entry.get_change_message() or entry.get_action_flag_display()


admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class PeopleAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    """For superusers. People who decided something are switched off (`is_active`), not deleted."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["username", "is_active", "is_superuser", "last_login"]
    list_filter = ["is_active", "is_superuser"]
    fieldsets = [(None, {"fields": ["username", "password", "is_active", "is_staff", "is_superuser", "last_login"]})]
    readonly_fields = ["last_login"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
